// SPDX-License-Identifier: Apache-2.0

// Package settle decides how a consumer's settlements go to the broker: which go together in one frame, which frames may be on
// their way, what is sent again, and what each answer means for whoever waits; it has no goroutine, clock or I/O, and refuses to
// call a settlement failed that an earlier writing may have brought about.
package settle

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Claims are what the tokens of one frame have in common.
type Claims struct {
	Shard      uint32
	Group      uint64
	Resets     uint32
	Generation uint64
}

// Token settles one message.
type Token struct {
	HandOut, Offset uint64
	Op              wire.SettleOp
	After           uint64 // of a Nack, in microseconds; 0 by the group's backoff
	Reason          string
}

// Flight is one frame from its first token to its answer. Whoever settles holds it and the token's index in it.
type Flight struct {
	Claims
	// Ticket is its correlation id on the lane, of its last writing.
	Ticket uint64
	// Done is closed when Result is final.
	Done chan struct{}

	tokens []indexed
	runs   int // that its tokens make in the order in which they came, at least as many as in order of hand-outs
	rising bool
	maybe  bool // an earlier writing may have been applied
	old    bool // of before the lane that its shard has now
	cut    []wire.SettleRun
	failed []fault
	err    *code.Error
}

type indexed struct {
	Token
	index uint32
}

type fault struct {
	index uint32
	code  code.Code
}

// Len is the number of its tokens.
func (f *Flight) Len() int { return len(f.tokens) }

// add takes a token and returns its index.
func (f *Flight) add(t Token) uint32 {
	i := uint32(len(f.tokens))
	if i == 0 {
		f.runs, f.rising = 1, true
	} else {
		last := &f.tokens[i-1].Token
		if t.Op != last.Op || t.HandOut != last.HandOut+1 || t.Offset != last.Offset+1 || t.After != last.After || t.Reason != last.Reason {
			f.runs++
		}
		f.rising = f.rising && t.HandOut > last.HandOut
	}
	f.tokens = append(f.tokens, indexed{t, i})
	return i
}

// goesOn reports whether t is the next of a run.
func goesOn(r *wire.SettleRun, t *Token) bool {
	return t.Op == r.Op && t.HandOut == r.HandOut+uint64(r.Count) && t.Offset == r.Offset+uint64(r.Count) && t.After == r.AfterUs && t.Reason == r.Reason
}

// Runs are what is to be written: consecutive hand-outs of consecutive offsets that end alike, each. They stay as they are,
// however often that is, and nobody changes them.
func (f *Flight) Runs() []wire.SettleRun {
	if f.cut != nil {
		return f.cut
	}
	if !f.rising {
		slices.SortFunc(f.tokens, func(a, b indexed) int { return cmp.Compare(a.HandOut, b.HandOut) })
	}
	f.cut = make([]wire.SettleRun, 0, f.runs)
	for i := range f.tokens {
		t := &f.tokens[i].Token
		if n := len(f.cut); n > 0 && goesOn(&f.cut[n-1], t) {
			f.cut[n-1].Count++
			continue
		}
		f.cut = append(f.cut, wire.SettleRun{Op: t.Op, HandOut: t.HandOut, Offset: t.Offset, Count: 1, AfterUs: t.After, Reason: t.Reason})
	}
	return f.cut
}

// Result is what became of the token at index, once Done is closed: nil when it is settled as was asked. A refusal that an
// earlier writing explains as well, because that was applied, is of class unknown.
func (f *Flight) Result(index uint32) *code.Error {
	if f.err != nil {
		return f.err
	}
	i := sort.Search(len(f.failed), func(i int) bool { return f.failed[i].index >= index })
	if i == len(f.failed) || f.failed[i].index != index {
		return nil
	}
	return f.refusal(f.failed[i].code)
}

// First is the first error among its tokens, once Done is closed.
func (f *Flight) First() *code.Error {
	switch {
	case f.err != nil:
		return f.err
	case len(f.failed) > 0:
		return f.refusal(f.failed[0].code)
	}
	return nil
}

func (f *Flight) refusal(c code.Code) *code.Error {
	e := code.New(c, "a message of shard %d", f.Shard)
	if f.maybe && c == code.NoLongerOwner {
		e.Class = code.ClassUnknown
	}
	return e
}

// fail notes which tokens were refused. The flight's runs are those that were written.
func (f *Flight) fail(failed []wire.SettleFailed) *code.Error {
	first := make([]int, len(f.cut)) // by run: the place of its first token
	for i, n := 0, 0; i < len(f.cut); i++ {
		first[i] = n
		n += int(f.cut[i].Count)
	}
	for _, x := range failed {
		if int64(x.Run) >= int64(len(f.cut)) || x.Index >= f.cut[x.Run].Count {
			return code.New(code.Protocol, "settled: run %d has no token %d", x.Run, x.Index)
		}
		f.failed = append(f.failed, fault{f.tokens[first[x.Run]+int(x.Index)].index, x.Code})
	}
	slices.SortFunc(f.failed, func(a, b fault) int { return cmp.Compare(a.index, b.index) })
	return nil
}

// line is what is to be settled in one shard.
type line struct {
	open      *Flight   // takes tokens
	waiting   []*Flight // full, or to be written again; before open
	sent      []*Flight // unanswered
	old       int       // of waiting and sent: what came before the lane
	up        bool
	failures  int
	notBefore time.Time
}

func (l *line) idle() bool { return l.open == nil && len(l.waiting) == 0 && len(l.sent) == 0 }
