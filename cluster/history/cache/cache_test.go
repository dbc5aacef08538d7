// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/cluster/history/cache"
)

// story is a history that is told step by step.
type story struct {
	cache.Recorder
	t *testing.T
}

// did tells of something that was acknowledged, at once.
func (s *story) did(a cache.Attempt, r cache.Answer) {
	r.Outcome = history.Acked
	s.End(s.Begin(a), r)
}

func (s *story) put(key, value string, version uint64) {
	s.did(cache.Attempt{Op: cache.Put, Key: key, Value: value}, cache.Answer{Version: version})
}

func (s *story) get(key, value string, version uint64) {
	s.did(cache.Attempt{Op: cache.Get, Key: key}, cache.Answer{Version: version, Got: value})
}

func (s *story) del(key string, version uint64) {
	s.did(cache.Attempt{Op: cache.Delete, Key: key}, cache.Answer{Version: version})
}

func (s *story) add(key string, delta, sum int64, version uint64) {
	s.did(cache.Attempt{Op: cache.Add, Key: key, Delta: delta}, cache.Answer{Version: version, Sum: sum})
}

// lost tells of something that nobody knows the outcome of.
func (s *story) lost(a cache.Attempt) { s.End(s.Begin(a), cache.Answer{}) }

// conflict tells of something that was refused for the version that the key had.
func (s *story) conflict(a cache.Attempt, have uint64) {
	s.End(s.Begin(a), cache.Answer{Outcome: history.Fatal, Have: &have})
}

func (s *story) wants(kinds ...cache.Kind) {
	s.t.Helper()
	found := s.Check()
	for i, v := range found {
		if len(kinds) <= i || v.Kind != kinds[i] {
			s.t.Errorf("found %v, want %v", found, kinds)
			return
		}
	}
	if len(found) < len(kinds) {
		s.t.Errorf("found %v, want %v", found, kinds)
	}
}

func put(value string, version *uint64) cache.Attempt {
	return cache.Attempt{Op: cache.Put, Key: "k", Value: value, If: version}
}

const second = int64(time.Second / time.Microsecond)

// Histories that are told of one key, and what they break.
var stories = map[string]struct {
	tell func(s *story)
	want []cache.Kind
}{
	"one after the other": {func(s *story) {
		s.get("k", "", 0)
		s.put("k", "a", 1)
		s.get("k", "a", 1)
		s.did(put("b", new(uint64(1))), cache.Answer{Version: 2})
		s.conflict(put("c", new(uint64(1))), 2)
		s.conflict(put("c2", new(uint64(0))), 2)
		s.del("k", 3)
		s.get("k", "", 0)
		s.conflict(put("d", new(uint64(2))), 0)
		s.did(put("e", new(uint64(0))), cache.Answer{Version: 4})
	}, nil},
	"empty is not absent": {func(s *story) {
		s.put("k", "", 1)
		s.get("k", "", 0)
	}, []cache.Kind{cache.Order}},
	"a stale read": {func(s *story) {
		s.put("k", "a", 1)
		s.put("k", "b", 2)
		s.get("k", "a", 1)
	}, []cache.Kind{cache.Order}},
	"a read that sees what is under way, and one behind it that does not": {func(s *story) {
		s.put("k", "a", 1)
		id := s.Begin(put("b", nil))
		s.get("k", "b", 2)
		s.get("k", "a", 1)
		s.End(id, cache.Answer{Outcome: history.Acked, Version: 2})
	}, []cache.Kind{cache.Order}},
	"a lost update": {func(s *story) {
		s.put("k", "a", 1)
		one, two := s.Begin(put("b", new(uint64(1)))), s.Begin(put("c", new(uint64(1))))
		s.End(one, cache.Answer{Outcome: history.Acked, Version: 2})
		s.End(two, cache.Answer{Outcome: history.Acked, Version: 3})
	}, []cache.Kind{cache.Order}},
	"two that create": {func(s *story) {
		one, two := s.Begin(put("b", new(uint64(0)))), s.Begin(put("c", new(uint64(0))))
		s.End(one, cache.Answer{Outcome: history.Acked, Version: 2})
		s.End(two, cache.Answer{Outcome: history.Acked, Version: 3})
	}, []cache.Kind{cache.Order}},
	"a delete that is undone": {func(s *story) {
		s.put("k", "a", 1)
		s.del("k", 2)
		s.get("k", "a", 1)
	}, []cache.Kind{cache.Order}},
	"a delete that may have been": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(cache.Attempt{Op: cache.Delete, Key: "k"})
		s.get("k", "a", 1)
		s.get("k", "", 0)
		s.get("k", "", 0)
	}, nil},
	"a delete that nobody asked for": {func(s *story) {
		s.put("k", "a", 1)
		s.get("k", "", 0)
	}, []cache.Kind{cache.Order}},
	"a delete that was refused and is there": {func(s *story) {
		s.put("k", "a", 1)
		s.End(s.Begin(cache.Attempt{Op: cache.Delete, Key: "k"}), cache.Answer{Outcome: history.Refused})
		s.get("k", "", 0)
	}, []cache.Kind{cache.Order}},
	"one unknown delete cannot be twice": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(cache.Attempt{Op: cache.Delete, Key: "k"})
		s.get("k", "", 0)
		s.put("k", "b", 3)
		s.get("k", "", 0)
	}, []cache.Kind{cache.Order}},
	"a delete that has no version to be": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(cache.Attempt{Op: cache.Delete, Key: "k"})
		s.put("other", "b", 2)
		s.get("k", "", 0)
		s.put("k", "c", 3)
	}, []cache.Kind{cache.Order}},
	"a delete that has a version to be": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(cache.Attempt{Op: cache.Delete, Key: "k"})
		s.put("other", "b", 2)
		s.get("k", "", 0)
		s.put("k", "c", 4)
	}, nil},
	"a read that came back, under all that was under way": {func(s *story) {
		s.put("k", "a", 1)
		var open []cache.ID
		for range 20 {
			s.lost(cache.Attempt{Op: cache.Delete, Key: "k"})
			open = append(open, s.Begin(cache.Attempt{Op: cache.Delete, Key: "k"}))
		}
		s.get("k", "", 0)
		read := s.Begin(cache.Attempt{Op: cache.Get, Key: "k"})
		for i, id := range open {
			s.End(id, cache.Answer{Outcome: history.Acked, Version: uint64(20 + i)})
		}
		s.put("k", "b", 50)
		s.End(read, cache.Answer{Outcome: history.Acked, Version: 1, Got: "a"})
		s.get("k", "b", 50)
	}, []cache.Kind{cache.Order}},
	"a put that came late": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(put("b", nil))
		s.get("k", "a", 1)
		s.put("k", "c", 2)
		s.get("k", "c", 2)
		s.get("k", "b", 3)
	}, nil},
	"a put that came, and is overtaken by what was there before": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(put("b", nil))
		s.get("k", "b", 2)
		s.get("k", "a", 1)
	}, []cache.Kind{cache.Order}},
	"a conflict with what nobody saw": {func(s *story) {
		s.put("k", "a", 1)
		s.lost(put("b", nil))
		s.conflict(put("c", new(uint64(1))), 5)
		s.get("k", "b", 5)
		s.conflict(put("d", new(uint64(1))), 5)
	}, nil},
	"a conflict with what cannot be": {func(s *story) {
		s.put("k", "a", 1)
		s.conflict(put("c", new(uint64(3))), 2)
	}, []cache.Kind{cache.Order}},
	"a conflict with itself": {func(s *story) {
		s.put("k", "a", 1)
		s.conflict(put("c", new(uint64(1))), 1)
	}, []cache.Kind{cache.Condition}},
	"a put that was refused and is there": {func(s *story) {
		s.End(s.Begin(put("b", nil)), cache.Answer{Outcome: history.Refused})
		s.get("k", "b", 1)
	}, []cache.Kind{cache.Stored, cache.Order}},
	"a value that nobody wrote": {func(s *story) {
		s.put("k", "a", 1)
		s.get("k", "b", 2)
	}, []cache.Kind{cache.Phantom, cache.Order}},
	"another value than was written": {func(s *story) {
		s.put("k", "a", 1)
		s.put("k", "b", 2)
		s.get("k", "a", 2)
	}, []cache.Kind{cache.Altered, cache.Order}},
	"a put that is there twice": {func(s *story) {
		s.lost(put("a", nil))
		s.get("k", "a", 1)
		s.get("k", "a", 2)
	}, []cache.Kind{cache.Twice, cache.Order}},
	"versions that fall": {func(s *story) {
		s.put("k", "a", 2)
		s.put("k", "b", 1)
	}, []cache.Kind{cache.VersionBack, cache.Order}},
	"versions that fall between keys": {func(s *story) {
		s.put("k", "a", 2)
		s.put("other", "b", 1)
	}, []cache.Kind{cache.VersionBack}},
	"a version of two keys": {func(s *story) {
		one, two := s.Begin(put("a", nil)), s.Begin(cache.Attempt{Op: cache.Put, Key: "l", Value: "b"})
		s.End(one, cache.Answer{Outcome: history.Acked, Version: 2})
		s.End(two, cache.Answer{Outcome: history.Acked, Version: 2})
	}, []cache.Kind{cache.Clash}},
	"sums": {func(s *story) {
		s.add("k", 5, 5, 1)
		s.lost(cache.Attempt{Op: cache.Add, Key: "k", Delta: 7})
		s.add("k", -2, 3, 2)
		s.add("k", 1, 11, 4)
		s.get("k", "11", 4)
		s.del("k", 5)
		s.add("k", 1, 1, 6)
	}, nil},
	"sums that are seen while nobody knows": {func(s *story) {
		for range 6 {
			s.lost(cache.Attempt{Op: cache.Add, Key: "k", Delta: 1})
		}
		s.get("k", "2", 2)
		s.get("k", "5", 9)
		s.add("k", 10, 16, 12)
	}, nil},
	"a sum that counts twice": {func(s *story) {
		s.add("k", 5, 5, 1)
		s.lost(cache.Attempt{Op: cache.Add, Key: "k", Delta: 7})
		s.get("k", "19", 3)
	}, []cache.Kind{cache.Order}},
	"a sum that leaves one out": {func(s *story) {
		one, two := s.Begin(cache.Attempt{Op: cache.Add, Key: "k", Delta: 1}), s.Begin(cache.Attempt{Op: cache.Add, Key: "k", Delta: 1})
		s.End(one, cache.Answer{Outcome: history.Acked, Version: 1, Sum: 1})
		s.End(two, cache.Answer{Outcome: history.Acked, Version: 2, Sum: 1})
	}, []cache.Kind{cache.Order}},
}

func TestStories(t *testing.T) {
	for name, x := range stories {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := &story{t: t}
			x.tell(s)
			s.wants(x.want...)
		})
	}
}

// A key is there up to its deadline and not beyond it, as far as clients can tell the time.
func TestExpiry(t *testing.T) {
	base := int64(1_000_000_000)
	for name, x := range map[string]struct {
		tell func(s *story, get func(from, to int64, version uint64))
		want []cache.Kind
	}{
		"there, then gone": {func(_ *story, get func(from, to int64, version uint64)) {
			get(base+second, base+2*second, 1)
			get(base+9*second, base+10*second-1, 1)
			get(base+9*second, base+10*second, 0)
		}, nil},
		"gone too early": {func(_ *story, get func(from, to int64, version uint64)) {
			get(base+9*second, base+10*second-1, 0)
		}, []cache.Kind{cache.Order}},
		"there too long": {func(_ *story, get func(from, to int64, version uint64)) {
			get(base+10*second, base+11*second, 1)
		}, []cache.Kind{cache.Order}},
		"gone and back": {func(_ *story, get func(from, to int64, version uint64)) {
			get(base+9*second, base+11*second, 0)
			get(base+9*second, base+11*second, 1)
		}, []cache.Kind{cache.Order}},
		"created again": {func(s *story, _ func(from, to int64, version uint64)) {
			a := put("b", new(uint64(0)))
			a.NotBefore = base + 9*second
			s.did(a, cache.Answer{Version: 2, NotAfter: base + 11*second})
			s.get("k", "b", 2)
		}, nil},
		"created again too early": {func(s *story, _ func(from, to int64, version uint64)) {
			a := put("b", new(uint64(0)))
			a.NotBefore = base + 8*second
			s.did(a, cache.Answer{Version: 2, NotAfter: base + 9*second})
		}, []cache.Kind{cache.Order}},
		"compared with when it was over": {func(s *story, _ func(from, to int64, version uint64)) {
			a := put("b", new(uint64(1)))
			a.NotBefore = base + 10*second
			s.did(a, cache.Answer{Version: 2, NotAfter: base + 11*second})
		}, []cache.Kind{cache.Order}},
		"for ever by another put": {func(s *story, _ func(from, to int64, version uint64)) {
			a := put("b", nil)
			a.NotBefore = base + 8*second
			s.did(a, cache.Answer{Version: 2, NotAfter: base + 9*second})
			s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: base + 20*second}, cache.Answer{Version: 2, Got: "b", NotAfter: base + 30*second})
		}, nil},
		"a life that begins anew": {func(s *story, _ func(from, to int64, version uint64)) {
			expires := base + 15*second
			s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: base + second},
				cache.Answer{Version: 1, Got: "a", NotAfter: base + 2*second, Expires: &expires})
		}, []cache.Kind{cache.Early, cache.Order}},
		"counted on by one that was under way": {func(s *story, _ func(from, to int64, version uint64)) {
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, TTL: time.Second, NotBefore: base},
				cache.Answer{Version: 2, Sum: 3, AppendTime: base, NotAfter: base})
			early := s.Begin(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, NotBefore: base})
			s.did(cache.Attempt{Op: cache.Get, Key: "n", NotBefore: base + second}, cache.Answer{NotAfter: base + 2*second})
			s.End(early, cache.Answer{Outcome: history.Acked, Version: 3, Sum: 6, NotAfter: base + 3*second})
		}, nil},
		"counted on by one that came later": {func(s *story, _ func(from, to int64, version uint64)) {
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, TTL: time.Second, NotBefore: base},
				cache.Answer{Version: 2, Sum: 3, AppendTime: base, NotAfter: base})
			late := s.Begin(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, NotBefore: base + second})
			s.did(cache.Attempt{Op: cache.Get, Key: "n", NotBefore: base + second}, cache.Answer{NotAfter: base + 2*second})
			s.End(late, cache.Answer{Outcome: history.Acked, Version: 3, Sum: 6, NotAfter: base + 3*second})
		}, []cache.Kind{cache.Order}},
		"counted from 0 again": {func(s *story, _ func(from, to int64, version uint64)) {
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, TTL: time.Second, NotBefore: base},
				cache.Answer{Version: 2, Sum: 3, AppendTime: base, NotAfter: base})
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, NotBefore: base},
				cache.Answer{Version: 3, Sum: 3, NotAfter: base + 2*second})
		}, nil},
		"counted from 0 too early": {func(s *story, _ func(from, to int64, version uint64)) {
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, TTL: time.Second, NotBefore: base},
				cache.Answer{Version: 2, Sum: 3, AppendTime: base, NotAfter: base})
			s.did(cache.Attempt{Op: cache.Add, Key: "n", Delta: 3, NotBefore: base},
				cache.Answer{Version: 3, Sum: 3, NotAfter: base + second - 1})
		}, []cache.Kind{cache.Order}},
		"kept and touched": {func(s *story, _ func(from, to int64, version uint64)) {
			s.did(cache.Attempt{Op: cache.Touch, Key: "k", TTL: 20 * time.Second, NotBefore: base + 5*second},
				cache.Answer{Version: 2, AppendTime: base + 6*second, NotAfter: base + 7*second})
			s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: base + 25*second}, cache.Answer{Version: 2, Got: "a", NotAfter: base + 26*second})
			s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: base + 25*second}, cache.Answer{NotAfter: base + 26*second})
			s.did(cache.Attempt{Op: cache.Touch, Key: "k", TTL: time.Second, NotBefore: base + 25*second}, cache.Answer{NotAfter: base + 27*second})
		}, nil},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := &story{t: t}
			a := put("a", nil)
			a.TTL, a.NotBefore = 10*time.Second, base-second
			s.did(a, cache.Answer{Version: 1, AppendTime: base, NotAfter: base + second})
			x.tell(s, func(from, to int64, version uint64) {
				r := cache.Answer{Version: version, NotAfter: to}
				if version != 0 {
					r.Got = "a"
				}
				s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: from}, r)
			})
			s.wants(x.want...)
		})
	}
}

// A put whose outcome nobody knows has a deadline that nobody knows, and one that is told later.
func TestUnknownDeadline(t *testing.T) {
	s := &story{t: t}
	a := put("a", nil)
	a.TTL, a.NotBefore = time.Second, 0
	s.lost(a)
	expires := 5 * second
	s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: 3 * second}, cache.Answer{Version: 1, Got: "a", NotAfter: 4 * second})
	s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: 3 * second}, cache.Answer{Version: 1, Got: "a", Expires: &expires, NotAfter: 4 * second})
	s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: 4 * second}, cache.Answer{NotAfter: 6 * second})
	s.wants()
	s.did(cache.Attempt{Op: cache.Get, Key: "k", NotBefore: 3 * second}, cache.Answer{Version: 1, Got: "a", NotAfter: 4 * second})
	s.wants(cache.Order)
}

// A history that no search of this length can judge is not called good.
func TestSearchIsBounded(t *testing.T) {
	s := &story{t: t}
	s.Steps = 1000
	for i := range int64(12) {
		s.lost(cache.Attempt{Op: cache.Add, Key: "k", Delta: 1 << i})
	}
	s.get("k", "4096", 20)
	s.wants(cache.Undecided)
}

// What was read as of an offset is what was there.
func TestStaleReads(t *testing.T) {
	stale := func(s *story, version, asOf, least uint64) {
		r := cache.Answer{Version: version, AsOf: asOf}
		if version != 0 {
			r.Got = fmt.Sprint(version)
		}
		s.did(cache.Attempt{Op: cache.Get, Key: "k", Stale: true, AtLeast: least}, r)
	}
	for _, x := range []struct {
		version, asOf, least uint64
		want                 []cache.Kind
	}{
		{2, 2, 0, nil},
		{2, 3, 0, nil},
		{0, 1, 1, nil},
		{4, 9, 2, nil},
		{2, 4, 0, []cache.Kind{cache.Order}},
		{0, 2, 0, []cache.Kind{cache.Order}},
		{2, 2, 3, []cache.Kind{cache.Order}},
	} {
		s := &story{t: t}
		s.put("k", "2", 2)
		s.put("k", "4", 4)
		stale(s, x.version, x.asOf, x.least)
		s.wants(x.want...)
	}
}
