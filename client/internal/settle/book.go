// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// maxFailures bounds the exponent of the wait, not the number of tries: a settlement is tried as long as its consumer lives.
const maxFailures = 16

// Book holds everything that a consumer has settled and that is not answered. The zero value is not usable; call New.
type Book struct {
	window   int
	wait     func(n int) time.Duration
	ticket   uint64
	lines    map[uint32]*line
	pending  int // tokens
	finished []*Flight
	free     [][]indexed
}

// keepFree is how many token lists are kept for other frames.
const keepFree = 8

// New returns an empty book. Window is how many frames of a shard may be unanswered; wait is the pause after the n-th refusal in
// a row, n from 1.
func New(window int, wait func(n int) time.Duration) *Book {
	return &Book{window: window, wait: wait, lines: map[uint32]*line{}}
}

// Pending is the number of tokens that are not answered.
func (b *Book) Pending() int { return b.pending }

func (b *Book) line(shard uint32) *line {
	l := b.lines[shard]
	if l == nil {
		l = &line{}
		b.lines[shard] = l
	}
	return l
}

// Add takes a token. It returns where its result will be.
func (b *Book) Add(c Claims, t Token) (*Flight, uint32) {
	l := b.line(c.Shard)
	if f := l.open; f != nil && (f.Claims != c || len(f.tokens) >= wire.MaxSettleTokens || f.runs >= wire.MaxSettleRuns) {
		l.waiting, l.open = append(l.waiting, f), nil
	}
	if l.open == nil {
		l.open = &Flight{Claims: c, Done: make(chan struct{})}
		if n := len(b.free); n > 0 {
			l.open.tokens, b.free = b.free[n-1], b.free[:n-1]
		}
	}
	b.pending++
	return l.open, l.open.add(t)
}

// Up says that a lane serves the shard, another than before.
func (b *Book) Up(shard uint32) {
	l := b.line(shard)
	l.again()
	if l.open != nil {
		l.waiting, l.open = append(l.waiting, l.open), nil
	}
	for _, f := range l.waiting {
		f.old = true
	}
	l.up, l.old = true, len(l.waiting) // all that there is
}

// Behind reports whether something that was settled before the shard's lane was there is not answered: what the lane is handed
// before that may be what was settled.
func (b *Book) Behind(shard uint32) bool {
	l := b.lines[shard]
	return l != nil && l.old > 0
}

// again has what was written over a lane and not answered written over the next. It may be applied.
func (l *line) again() {
	for _, f := range l.sent {
		f.maybe = true
	}
	l.waiting = append(l.sent, l.waiting...)
	l.sent = nil
}

// Down says that the lane of a shard takes no more for it. Answers to what was written may still come.
func (b *Book) Down(shard uint32) {
	if l := b.lines[shard]; l != nil {
		l.up, l.failures, l.notBefore = false, 0, time.Time{}
	}
}

// Ready reports whether a frame of the shard may be written now.
func (b *Book) Ready(shard uint32, now time.Time) bool {
	l := b.lines[shard]
	return l != nil && l.up && (l.open != nil || len(l.waiting) > 0) && len(l.sent) < b.window && !now.Before(l.notBefore)
}

// Wake returns when Ready may become true without an event; zero for never.
func (b *Book) Wake(shard uint32, now time.Time) time.Time {
	l := b.lines[shard]
	if l == nil || !l.up || l.open == nil && len(l.waiting) == 0 || len(l.sent) >= b.window || !l.notBefore.After(now) {
		return time.Time{}
	}
	return l.notBefore
}

// Take returns the next frame to write, which counts as written.
func (b *Book) Take(shard uint32, now time.Time) *Flight {
	if !b.Ready(shard, now) {
		return nil
	}
	l := b.lines[shard]
	f := l.open
	if len(l.waiting) > 0 {
		f = l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
	} else {
		l.open = nil
	}
	b.ticket++
	f.Ticket = b.ticket
	l.sent = append(l.sent, f)
	return f
}

// Settled takes an answer: all tokens but the failed ones are settled. It reports whether there was such a frame that is not
// answered; one that was written again has another ticket since.
func (b *Book) Settled(ticket uint64, failed []wire.SettleFailed) (owed bool, _ *code.Error) {
	f, l := b.answered(ticket)
	if f == nil {
		return false, nil
	}
	if err := f.fail(failed); err != nil {
		f.failed = nil
		f.maybe = true
		l.waiting = slices.Insert(l.waiting, 0, f)
		return true, err
	}
	l.failures, l.notBefore = 0, time.Time{}
	b.finish(f)
	return true, nil
}

// Refused takes an error as the answer to a whole frame. What may pass is tried again.
func (b *Book) Refused(ticket uint64, err *code.Error, now time.Time) (owed bool) {
	f, l := b.answered(ticket)
	if f == nil {
		return false
	}
	if err.Class == code.ClassFatal {
		e := *err
		if f.maybe {
			e.Class = code.ClassUnknown // this writing was not applied; an earlier one may have been
		}
		f.err = &e
		b.finish(f)
		return true
	}
	f.maybe = f.maybe || err.Class == code.ClassUnknown
	l.failures = min(l.failures+1, maxFailures)
	l.notBefore = now.Add(max(err.RetryAfter, 0) + b.wait(l.failures))
	l.waiting = slices.Insert(l.waiting, 0, f)
	return true
}

// answered finds the frame of a ticket and takes it out of those that are unanswered.
func (b *Book) answered(ticket uint64) (*Flight, *line) {
	for _, l := range b.lines {
		for i, f := range l.sent {
			if f.Ticket == ticket {
				l.sent = slices.Delete(l.sent, i, i+1)
				return f, l
			}
		}
	}
	return nil, nil
}

// Lost says that the lane of a shard is gone. What was written and not answered may be applied; it is written again, under the
// same tokens, over the next.
func (b *Book) Lost(shard uint32) {
	l := b.lines[shard]
	if l == nil {
		return
	}
	b.Down(shard)
	l.again()
	if l.idle() {
		delete(b.lines, shard)
	}
}

// Abort gives up everything: unknown where it may be applied. Nothing may be added any more.
func (b *Book) Abort(c code.Code, why string) {
	for _, l := range b.lines {
		for _, f := range l.sent {
			f.maybe = true
			f.abort(c, why)
			b.finish(f)
		}
		for _, f := range l.waiting {
			f.abort(c, why)
			b.finish(f)
		}
		if l.open != nil {
			l.open.abort(c, why)
			b.finish(l.open)
		}
		*l = line{}
	}
}

func (f *Flight) abort(c code.Code, why string) {
	f.err = code.New(c, "%s", why).WithClass(code.ClassRefused)
	if f.maybe {
		f.err.Class = code.ClassUnknown
	}
}

// finish ends a flight. Its tokens are not needed for its results.
func (b *Book) finish(f *Flight) {
	b.pending -= len(f.tokens)
	if f.old {
		b.lines[f.Shard].old--
	}
	if len(b.free) < keepFree {
		clear(f.tokens)
		b.free = append(b.free, f.tokens[:0])
	}
	f.tokens, f.cut = nil, nil
	b.finished = append(b.finished, f)
}

// Idle reports whether nothing is to be settled in a shard, nor unanswered.
func (b *Book) Idle(shard uint32) bool {
	l := b.lines[shard]
	return l == nil || l.idle()
}

// Flights appends everything that is not answered.
func (b *Book) Flights(into []*Flight) []*Flight {
	for _, l := range b.lines {
		into = append(append(into, l.sent...), l.waiting...)
		if l.open != nil {
			into = append(into, l.open)
		}
	}
	return into
}

// Finished returns the flights that ended since the last call. The caller closes their Done.
func (b *Book) Finished() []*Flight {
	f := b.finished
	b.finished = nil
	return f
}
