// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"testing"

	"margay.dev/cluster/history"
)

var shard0 = history.Shard{Log: "log"}

// put records an attempt that was acknowledged, and that the reader "audit" got.
func put(r *history.Recorder, key string, offset, generation uint64, edit func(*history.Attempt)) {
	a := history.Attempt{Op: "publish", Key: key, Digest: history.Sum([]byte(key), fmt.Append(nil, key, offset, generation))}
	if edit != nil {
		edit(&a)
	}
	id := r.Begin(a)
	r.End(id, history.Answer{Outcome: history.Acked, Shard: shard0, Offset: offset, Generation: generation})
}

func read(r *history.Recorder, reader, key string, offset, generation uint64) {
	r.Read(reader, history.Record{
		Shard: shard0, Offset: offset, Key: key, Generation: generation, Digest: history.Sum([]byte(key), fmt.Append(nil, key, offset, generation)),
	})
}

// wants checks that a history breaks just these promises.
func wants(t *testing.T, r *history.Recorder, kinds ...history.Kind) {
	t.Helper()
	found := r.Check()
	if len(found) != len(kinds) {
		t.Fatalf("found %v, want %v", found, kinds)
	}
	for i, v := range found {
		if v.Kind != kinds[i] {
			t.Errorf("found %v, want %v", v, kinds[i])
		}
	}
}

func version(v uint64) func(*history.Attempt) {
	return func(a *history.Attempt) { x := history.Version(v); a.If = &x }
}

func TestConditionsFollowTheLog(t *testing.T) {
	for _, c := range []struct {
		third uint64
		want  []history.Kind
	}{{2, nil}, {1, []history.Kind{history.Condition}}, {0, []history.Kind{history.Condition}}} {
		var r history.Recorder
		put(&r, "k", 0, 1, version(0))
		put(&r, "k", 1, 1, version(1))
		put(&r, "k", 2, 1, version(c.third))
		wants(t, &r, c.want...)
	}
}

func TestConflictsNameAVersionThatWas(t *testing.T) {
	for have, want := range map[uint64][]history.Kind{1: nil, 2: {history.Condition}, 5: {history.Condition}} {
		var r history.Recorder
		put(&r, "k", 0, 1, nil)
		put(&r, "other", 1, 1, nil)
		one, told := history.Version(5), history.Version(have)
		id := r.Begin(history.Attempt{Key: "k", If: &one, Digest: history.Sum(nil, []byte("loser"))})
		r.End(id, history.Answer{Outcome: history.Fatal, Shard: shard0, Have: &told})
		read(&r, "audit", "k", 0, 1)
		read(&r, "audit", "other", 1, 1)
		r.Audit("audit", shard0, 0, 2)
		wants(t, &r, want...)
	}
}

func TestCursorsStayBetweenWhatWasAckedAndAsked(t *testing.T) {
	for at, want := range map[uint64][]history.Kind{4: {history.CursorBack}, 5: nil, 7: nil, 8: {history.CursorBack}} {
		var r history.Recorder
		r.Committed(r.Commit("c", shard0, 5), history.Acked)
		r.Commit("c", shard0, 7) // nobody knows
		r.Committed(r.Commit("c", shard0, 9), history.Refused)
		r.Found("c", shard0, at, r.Moment())
		wants(t, &r, want...)
	}
}

func TestStartsOnlyRise(t *testing.T) {
	var r history.Recorder
	r.Begins(shard0, 3, r.Moment())
	r.Begins(shard0, 3, r.Moment())
	wants(t, &r)
	r.Begins(shard0, 2, r.Moment())
	wants(t, &r, history.StartBack)
}

// What a log was allowed to lose may be missing, and its offset given again; what lies below may not.
func TestCutsExcuseWhatLaysBeyond(t *testing.T) {
	var r history.Recorder
	put(&r, "a", 0, 1, nil)
	put(&r, "b", 1, 1, nil)
	read(&r, "early", "a", 0, 1)
	read(&r, "early", "b", 1, 1)
	r.Cut(shard0, 1, 2)
	put(&r, "c", 1, 2, nil)
	read(&r, "audit", "a", 0, 1)
	read(&r, "audit", "c", 1, 2)
	r.Audit("audit", shard0, 0, 2)
	wants(t, &r)
	r.Cut(shard0, 2, 3)
	put(&r, "d", 1, 3, nil) // below the cut: nobody may have it
	wants(t, &r, history.Clash, history.Altered)
}

// A record that was read is not said to be missing while it is there; once a loss that was allowed has taken it, that is so.
func TestCutsExcuseWhatIsSaidAfterThem(t *testing.T) {
	for _, outcome := range []history.Outcome{history.Refused, history.Fatal} {
		for name, c := range map[string]struct {
			before, after []uint64 // offsets of cuts, around the answer
			want          []history.Kind
		}{
			"before it is lost":         {after: []uint64{1}, want: []history.Kind{history.Stored}},
			"after it is lost":          {before: []uint64{1}},
			"after another loss":        {before: []uint64{2}, after: []uint64{1}, want: []history.Kind{history.Stored}},
			"after two losses":          {before: []uint64{1, 0}},
			"after a loss of something": {before: []uint64{2}, want: []history.Kind{history.Stored}},
		} {
			t.Run(outcome.String()+" "+name, func(t *testing.T) {
				var r history.Recorder
				id := r.Begin(history.Attempt{Op: "publish", Key: "b", Digest: history.Sum([]byte("b"), fmt.Append(nil, "b", uint64(1), uint64(1)))})
				read(&r, "early", "b", 1, 1)
				gen := uint64(2)
				cut := func(offsets []uint64) {
					for _, o := range offsets {
						r.Cut(shard0, o, gen)
						gen++
					}
				}
				cut(c.before)
				r.End(id, history.Answer{Outcome: outcome})
				cut(c.after)
				wants(t, &r, c.want...)
			})
		}
	}
}

func TestSomewhereIsSomewhere(t *testing.T) {
	for _, there := range []bool{true, false} {
		var r history.Recorder
		id := r.Begin(history.Attempt{Key: "k", Digest: history.Sum([]byte("k"), fmt.Append(nil, "k", uint64(0), uint64(1)))})
		r.End(id, history.Answer{Outcome: history.Acked, Somewhere: true, Shard: shard0})
		if there {
			read(&r, "audit", "k", 0, 1)
			r.Audit("audit", shard0, 0, 1)
			wants(t, &r)
			continue
		}
		r.Audit("audit", shard0, 0, 0)
		wants(t, &r, history.Lost)
	}
}
