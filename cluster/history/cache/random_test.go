// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/cluster/history/cache"
)

// shop is a cache of a few keys that works, or does one thing wrong, and its clients, who may never hear from it.
type shop struct {
	cache.Recorder
	rng     *rand.Rand
	now     int64
	version uint64
	values  map[string]cell
	before  map[string]cell // what each key was before its last change
	open    []*order
	wrong   string
	done    bool // it did it
	watcher *cache.Watcher
	count   int
	width   int        // so many are under way at most
	losing  int        // one in so many turns of an attempt its client gives up
	only    []cache.Op // then there is one key, and this is what is asked of it
	steps   int
}

type cell struct {
	value   string
	version uint64 // 0: not there
	expires int64
}

// order is an attempt under way.
type order struct {
	cache.Attempt
	id      cache.ID
	answer  cache.Answer
	applied bool
	given   bool // up, by its client
}

func (s *shop) wrongs(what string) bool {
	if s.wrong != what || s.done || s.rng.IntN(4) != 0 {
		return false
	}
	s.done = true
	return true
}

func (s *shop) begin() {
	s.count++
	a := cache.Attempt{
		Op:  []cache.Op{cache.Get, cache.Get, cache.Put, cache.Put, cache.Put, cache.Delete, cache.Add, cache.Touch}[s.rng.IntN(8)],
		Key: fmt.Sprintf("k%d", s.rng.IntN(3)), NotBefore: s.now, Client: fmt.Sprint("c", s.count),
	}
	switch a.Op {
	case cache.Add:
		a.Key, a.Delta, a.KeepTTL = "n", int64(s.rng.IntN(5)), s.rng.IntN(2) == 0
	case cache.Touch:
		a.Key = "t"
	case cache.Put:
		a.Value = fmt.Sprintf("v%d", s.count)
		if s.rng.IntN(6) == 0 {
			a.Key = "t"
		}
		if s.rng.IntN(3) == 0 {
			v := s.values[a.Key].version
			if s.rng.IntN(4) == 0 {
				v = 0
			}
			a.If = &v
		}
	default:
	}
	if s.only != nil {
		a.Op, a.Key = s.only[s.rng.IntN(len(s.only))], "k"
		a.Value, a.Delta, a.KeepTTL, a.If = "", 0, false, nil
		switch a.Op {
		case cache.Put:
			a.Value = fmt.Sprintf("v%d", s.count)
		case cache.Add:
			a.Delta, a.KeepTTL = int64(s.rng.IntN(6))-2, s.rng.IntN(2) == 0
		default:
		}
		if (a.Op == cache.Put || a.Op == cache.Delete) && s.rng.IntN(3) == 0 {
			v := s.at(a.Key).version
			a.If = &v
		}
	}
	if a.Op != cache.Delete && a.Op != cache.Get && s.rng.IntN(3) == 0 {
		a.TTL, a.KeepTTL = time.Duration(1+s.rng.IntN(40))*time.Microsecond, false
	}
	s.open = append(s.open, &order{Attempt: a, id: s.Begin(a)})
}

// at is what a key has now.
func (s *shop) at(key string) cell {
	c := s.values[key]
	if c.expires != 0 && s.now >= c.expires {
		return cell{}
	}
	return c
}

// alone says whether nothing else is under way that changes the key: what was before then is over for certain.
func (s *shop) alone(o *order) bool {
	for _, other := range s.open {
		if other.Op != cache.Get && other.Key == o.Key {
			return false
		}
	}
	return s.values[o.Key].expires == 0
}

func (s *shop) apply(o *order) {
	o.applied = true
	o.answer.Outcome = history.Acked
	have := s.at(o.Key)
	if o.Op == cache.Get {
		if s.alone(o) && s.before[o.Key] != have && s.wrongs("stale read") {
			have = s.before[o.Key]
		}
		o.answer.Version, o.answer.Got = have.version, have.value
		if have.version != 0 {
			o.answer.Expires = &have.expires
		}
		return
	}
	if o.If != nil && *o.If != have.version && !s.wrongs("lost update") {
		o.answer.Outcome, o.answer.Have = history.Fatal, &have.version
		return
	}
	if o.Op == cache.Touch && have.version == 0 {
		return
	}
	if have.version != 0 && s.wrongs("acknowledged and not stored") {
		s.version++
		o.answer.Version, o.answer.Sum = s.version, o.Delta
		return
	}
	times := 1
	if o.Op == cache.Add && s.wrongs("counted twice") {
		times = 2
	}
	for range times {
		s.store(o)
	}
	if s.wrongs("refused and stored") {
		o.answer = cache.Answer{Outcome: history.Refused}
	}
}

func (s *shop) store(o *order) {
	have := s.at(o.Key)
	s.version++
	next := cell{value: o.Value, version: s.version}
	switch {
	case o.TTL > 0:
		next.expires = s.now + o.TTL.Microseconds()
	case o.KeepTTL:
		next.expires = have.expires
	}
	x := cache.Change{Version: s.version, Key: o.Key, Kind: cache.Value}
	switch o.Op {
	case cache.Delete:
		next, x.Kind = cell{}, cache.Deleted
		if s.wrongs("deleted and there") {
			next = have
		}
	case cache.Add:
		n, _ := strconv.ParseInt(have.value, 10, 64)
		o.answer.Sum = n + o.Delta
		next.value = strconv.FormatInt(o.answer.Sum, 10)
	case cache.Touch:
		next.value = have.value
	default:
	}
	o.answer.Version, o.answer.AppendTime = s.version, s.now
	x.Value = next.value
	s.before[o.Key], s.values[o.Key] = have, next
	switch {
	case s.wrongs("missed change"):
	case s.wrongs("repeated change"):
		s.watcher.Change(x)
		s.watcher.Change(x)
	default:
		s.watcher.Change(x)
	}
}

func (s *shop) step() {
	s.now += int64(s.rng.IntN(3))
	if len(s.open) < s.width && s.rng.IntN(3) == 0 {
		s.begin()
		return
	}
	if len(s.open) == 0 {
		return
	}
	i := s.rng.IntN(len(s.open))
	o := s.open[i]
	switch {
	case !o.given && s.rng.IntN(s.losing) == 0: // whatever becomes of it
		o.given = true
		s.End(o.id, cache.Answer{NotAfter: s.now})
		return
	case !o.applied && (!o.given || s.rng.IntN(2) == 0):
		s.apply(o)
		return
	case !o.given:
		o.answer.NotAfter = s.now
		s.End(o.id, o.answer)
	}
	s.open = append(s.open[:i], s.open[i+1:]...)
}

func newShop(seed uint64, wrong string) *shop {
	s := &shop{
		rng: rand.New(rand.NewPCG(seed, 1)), now: 1000, wrong: wrong, values: map[string]cell{}, before: map[string]cell{},
		width: 8, losing: 25, steps: 800,
	}
	s.watcher = s.Watch("w", func(string) bool { return true })
	return s
}

func (s *shop) run() []cache.Violation {
	s.watcher.Begin(0, false, new(uint64))
	s.watcher.Ready(0)
	for range s.steps {
		s.step()
	}
	s.watcher.Upto(0, s.version)
	return s.Check()
}

func run(seed uint64, wrong string) (*shop, []cache.Violation) {
	s := newShop(seed, wrong)
	return s, s.run()
}

func TestRandomHistoriesAreGood(t *testing.T) {
	for seed := range uint64(150) {
		if s, found := run(seed, ""); len(found) > 0 || s.Counts()[cache.Put] == 0 {
			t.Fatalf("seed %d: %v", seed, found)
		}
	}
}

// What is wrong once, somewhere in a long history, is found more often than not: that it never shows is possible.
func TestRandomHistoriesWithAFault(t *testing.T) {
	for wrong, least := range map[string]int{
		"stale read": 20, "lost update": 25, "acknowledged and not stored": 25, "counted twice": 25, "refused and stored": 25,
		"deleted and there": 15, "missed change": 30, "repeated change": 30,
	} {
		caught, done := 0, 0
		for seed := range uint64(40) {
			s, found := run(seed, wrong)
			if s.done {
				done++
			}
			if len(found) > 0 {
				caught++
			}
		}
		t.Logf("%s: %d of %d", wrong, caught, done)
		if caught < least {
			t.Errorf("%s: noticed in %d of %d histories", wrong, caught, done)
		}
	}
}
