// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"

	"margay.dev/cluster/history"
)

// A ledger finds in a history what is wrong with it, and nothing in one that is right.
func TestLedger(t *testing.T) {
	s := history.Shard{Log: "l", Number: 1}
	tag := func(n uint64) history.Tag { return history.Tag{Producer: 7, N: n} }
	publish := func(l *history.Ledger, n, offset uint64) {
		l.Begin(tag(n))
		l.End(tag(n), history.Answer{Outcome: history.Acked, Shard: s, Offset: offset, Generation: 1})
	}
	for name, c := range map[string]struct {
		want history.Kind // 0: nothing
		run  func(l *history.Ledger)
	}{
		"right": {0, func(l *history.Ledger) {
			publish(l, 1, 0)
			l.Audit(s, 0, tag(1), 1)
			l.Begin(tag(2))
			l.Begin(tag(3))
			l.Audit(s, 1, tag(2), 2) // before its answer
			l.End(tag(2), history.Answer{Outcome: history.Acked, Shard: s, Offset: 1, Generation: 1})
			l.End(tag(3), history.Answer{Outcome: history.Unknown})
			l.Audit(s, 2, tag(3), 3)
			publish(l, 4, 3)
			l.AuditGap(s, 3, 4)
			l.Close(s, 4)
		}},
		"acknowledged, passed by retention before its answer": {0, func(l *history.Ledger) {
			l.Begin(tag(1))
			l.AuditGap(s, 0, 5)
			l.End(tag(1), history.Answer{Outcome: history.Acked, Shard: s, Offset: 3})
			l.Close(s, 5)
		}},
		"a reader that was told of a loss": {0, func(l *history.Ledger) {
			r := l.Reader("r", false)
			for n := range uint64(4) {
				publish(l, n+1, n)
				l.Audit(s, n, tag(n+1), 1)
			}
			r.Read(s, 0, tag(1), 1)
			r.Gap(s, 1, 3)
			r.Read(s, 3, tag(4), 1)
			r.Resume(s, 0, 0)
			r.Read(s, 0, tag(1), 1)
		}},
		"lost at the end":         {history.Lost, func(l *history.Ledger) { publish(l, 1, 0); publish(l, 2, 1); l.Audit(s, 0, tag(1), 1) }},
		"lost behind the auditor": {history.Lost, func(l *history.Ledger) { begin(l, tag, 2); l.Audit(s, 0, tag(1), 1); acked(l, s, tag(2), 0) }},
		"altered":                 {history.Altered, func(l *history.Ledger) { publish(l, 1, 0); begin(l, tag, 2); l.Audit(s, 0, tag(2), 1) }},
		"altered, read first":     {history.Altered, func(l *history.Ledger) { begin(l, tag, 1); l.Audit(s, 4, tag(1), 1); acked(l, s, tag(1), 5) }},
		"clash": {history.Clash, func(l *history.Ledger) {
			publish(l, 1, 0)
			l.Begin(history.Tag{Producer: 8, N: 1})
			acked(l, s, history.Tag{Producer: 8, N: 1}, 0)
		}},
		"refused, then read": {history.Stored, func(l *history.Ledger) {
			begin(l, tag, 1)
			l.End(tag(1), history.Answer{Outcome: history.Refused})
			l.Audit(s, 0, tag(1), 1)
		}},
		"read, then refused": {history.Stored, func(l *history.Ledger) {
			begin(l, tag, 1)
			l.Audit(s, 0, tag(1), 1)
			l.End(tag(1), history.Answer{Outcome: history.Fatal})
		}},
		"twice":                     {history.Twice, func(l *history.Ledger) { publish(l, 1, 0); l.Audit(s, 0, tag(1), 1); l.Audit(s, 1, tag(1), 1) }},
		"out of order":              {history.ProducerOrder, func(l *history.Ledger) { begin(l, tag, 2); l.Audit(s, 0, tag(2), 1); l.Audit(s, 1, tag(1), 1) }},
		"acknowledged out of order": {history.ProducerOrder, func(l *history.Ledger) { publish(l, 1, 5); publish(l, 2, 4) }},
		"skipped":                   {history.Skipped, func(l *history.Ledger) { begin(l, tag, 2); l.Audit(s, 0, tag(1), 1); l.Audit(s, 2, tag(2), 1) }},
		"repeated":                  {history.Repeated, func(l *history.Ledger) { begin(l, tag, 2); l.Audit(s, 1, tag(1), 1); l.Audit(s, 0, tag(2), 1) }},
		"nobody's":                  {history.Phantom, func(l *history.Ledger) { l.Audit(s, 0, tag(1), 1) }},
		"short of the end":          {history.Vanished, func(l *history.Ledger) { begin(l, tag, 1); l.Audit(s, 0, tag(1), 1); l.Close(s, 9) }},
		"a lower generation": {history.GenerationOrder, func(l *history.Ledger) {
			begin(l, tag, 2)
			l.End(tag(1), history.Answer{Outcome: history.Acked, Shard: s, Offset: 0, Generation: 2})
			l.End(tag(2), history.Answer{Outcome: history.Acked, Shard: s, Offset: 1, Generation: 1})
		}},
		"readers disagree": {history.Disagree, func(l *history.Ledger) {
			publish(l, 1, 0)
			l.Audit(s, 0, tag(1), 1)
			l.Reader("r", false).Read(s, 0, tag(1), 2)
		}},
		"a reader is led past a record": {history.Skipped, func(l *history.Ledger) {
			begin(l, tag, 3)
			r := l.Reader("r", false)
			r.Read(s, 0, tag(1), 1)
			r.Read(s, 2, tag(3), 1)
		}},
		"a reader is led to a gap": {history.Skipped, func(l *history.Ledger) {
			begin(l, tag, 3)
			r := l.Reader("r", false)
			r.Read(s, 0, tag(1), 1)
			r.Gap(s, 2, 3)
		}},
		"a reader resumes before what it committed": {history.Repeated, func(l *history.Ledger) {
			begin(l, tag, 3)
			r := l.Reader("r", false)
			r.Read(s, 5, tag(1), 1)
			r.Resume(s, 2, 3)
		}},
		"a reader resumes behind where it was": {history.Skipped, func(l *history.Ledger) {
			begin(l, tag, 3)
			r := l.Reader("r", false)
			r.Read(s, 5, tag(1), 1)
			r.Resume(s, 8, 3)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := history.NewLedger()
			c.run(l)
			if c.want == history.Lost {
				l.Close(s, 1)
			}
			found := l.Violations()
			if c.want == 0 && len(found) > 0 || c.want != 0 && (len(found) == 0 || found[0].Kind != c.want) {
				t.Errorf("found %v, want %v", found, c.want)
			}
		})
	}
}

func begin(l *history.Ledger, tag func(uint64) history.Tag, to uint64) {
	for n := range to {
		l.Begin(tag(n + 1))
	}
}

func acked(l *history.Ledger, s history.Shard, t history.Tag, offset uint64) {
	l.End(t, history.Answer{Outcome: history.Acked, Shard: s, Offset: offset, Generation: 1})
}

// However long a run is, a ledger holds what is under way and no more.
func TestLedgerDoesNotGrow(t *testing.T) {
	l := history.NewLedger()
	s := history.Shard{Log: "l"}
	for n := range uint64(200_000) {
		tag := history.Tag{Producer: 1, N: n + 1}
		l.Begin(tag)
		if n%2 == 0 {
			acked(l, s, tag, n)
			l.Audit(s, n, tag, 1)
		} else {
			l.Audit(s, n, tag, 1)
			acked(l, s, tag, n)
		}
		if open := l.Open(); open > 0 {
			t.Fatalf("%d records are held when none is under way", open)
		}
	}
	l.Close(s, 200_000)
	if c := l.Counts(); c.Acked != 200_000 || c.Audited != 200_000 || c.Violations != 0 {
		t.Errorf("counted %+v", c)
	}
}
