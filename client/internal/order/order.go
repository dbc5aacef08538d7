// SPDX-License-Identifier: Apache-2.0

// Package order decides what a publish lane writes next and what each answer means: sequences,
// predecessors, retries, and what is given up. It is stepped by its owner, touches nothing, and refuses
// to send a batch again when that could store it twice.
package order

import (
	"strconv"
	"time"

	"margay.dev/wire/code"
)

// Config sets up a Line.
type Config struct {
	// Window is how many batches may be unanswered on the lane.
	Window int
	// NewID draws a producer id, never zero. Nil publishes without one: then nothing that may have been
	// stored is ever sent again.
	NewID func() uint64
	// Named is the id of a producer with a name, in place of NewID. The owner gives each of its batches a sequence, which
	// rises and tells that batch for ever, also to a process that comes later. That process takes what lies at or below the
	// shard's last sequence for stored, so nothing may pass over a batch that was not: the line ends with it.
	Named uint64
	// Wait returns how long to wait after the n-th failure in a row (n from 1).
	Wait func(n int) time.Duration
	// AnswerWait is how long the shard may take to answer, less when the batch's deadline comes first. Margin is what the
	// way may take on top of that.
	AnswerWait, Margin time.Duration
}

// Item is one batch on its way. The line owns every field but Value.
type Item[T any] struct {
	Value T
	// Deadline is when the batch is given up.
	Deadline time.Time
	// ID and Sequence name the batch to the shard; they are 0 until it is first taken to be written, except for the
	// sequence of a named producer's.
	ID, Sequence uint64
	// Elsewhere, set by the owner: as a duplicate it may be stored under another name than its own.
	Elsewhere bool
	// Previous is the sequence the line stood by before this one when it was last taken.
	Previous uint64
	// Ticket identifies the last writing of the batch: its correlation id on the lane.
	Ticket uint64

	onWire bool        // written on this connection and not answered
	maybe  bool        // an earlier writing may have stored it
	last   *code.Error // why it was not stored the last time
}

// Done is a batch whose fate is known to the client. Err nil means stored.
type Done[T any] struct {
	Item *Item[T]
	Err  *code.Error
}

// Line is the order of one publisher's batches in one shard. The zero value is not usable; call New.
type Line[T any] struct {
	cfg     Config
	id      uint64 // producer id
	next    uint64 // next sequence to take
	settled uint64 // last sequence that is stored, as far as the line knows
	ticket  uint64

	items     []*Item[T] // not done, in order; items[:cursor] were written on this connection
	cursor    int
	owed      []owed // answers the connection still owes, in the order of writing
	up        bool
	rewind    bool // something must be written again: write nothing new, wait for what is owed
	renew     bool // the shard does not know the producer: go on under a new id
	failures  int
	notBefore time.Time
	broken    *code.Error // why a named producer's line takes nothing more

	done []Done[T]
}

// New returns an empty line that is down.
func New[T any](cfg Config) *Line[T] {
	l := &Line[T]{cfg: cfg, next: 1}
	switch {
	case cfg.Named != 0:
		l.id = cfg.Named
	case cfg.NewID != nil:
		l.id = cfg.NewID()
	}
	return l
}

// Push puts a batch behind all others.
func (l *Line[T]) Push(it *Item[T]) {
	if l.broken != nil {
		l.finish(it, l.broken)
		return
	}
	l.items = append(l.items, it)
}

// Len is the number of batches that are not done.
func (l *Line[T]) Len() int { return len(l.items) }

// Items returns the batches that are not done, in order. The slice is valid until the next call.
func (l *Line[T]) Items() []*Item[T] { return l.items }

// Unwritten is the number of batches that wait to be written on this connection.
func (l *Line[T]) Unwritten() int { return len(l.items) - l.cursor }

// IsUp reports whether the lane has a connection.
func (l *Line[T]) IsUp() bool { return l.up }

// Up says that the lane has a connection; everything not done is written on it, oldest first.
func (l *Line[T]) Up() { l.up = true }

// Ready reports whether the window has room for one more batch now.
func (l *Line[T]) Ready(now time.Time) bool {
	return l.up && !l.rewind && len(l.owed) < l.cfg.Window && !now.Before(l.notBefore)
}

// Take returns the next batch to write, with its names filled in, and counts it as written.
func (l *Line[T]) Take(now time.Time) (*Item[T], bool) {
	if l.cursor == len(l.items) || !l.Ready(now) {
		return nil, false
	}
	it := l.items[l.cursor]
	if it.ID = l.id; l.id != 0 && it.Sequence == 0 {
		it.Sequence = l.next
		l.next++
	}
	// What was given up or refused since is left out here: the successor names what the line still stands by.
	it.Previous = l.settled
	if l.cursor > 0 {
		it.Previous = l.items[l.cursor-1].Sequence
	}
	l.ticket++
	it.Ticket, it.onWire = l.ticket, true
	l.cursor++
	l.owed = append(l.owed, owed{ticket: it.Ticket, deadline: it.Deadline})
	return it, true
}

// Finished returns what became done since the last call, in the order it did. The slice is valid until the
// next call of any method.
func (l *Line[T]) Finished() []Done[T] {
	d := l.done
	l.done = l.done[len(l.done):]
	return d
}

// Wake returns when the line has something to do without an event: a pause ends, a batch is given up, an answer is late.
func (l *Line[T]) Wake(now time.Time) (at time.Time, ok bool) {
	at, ok = l.due()
	if len(l.items) > 0 && (!ok || l.items[0].Deadline.Before(at)) {
		at, ok = l.items[0].Deadline, true
	}
	if l.up && !l.rewind && l.notBefore.After(now) && (!ok || l.notBefore.Before(at)) {
		at, ok = l.notBefore, true
	}
	return at, ok
}

// Expire gives up what is past its deadline. Deadlines do not decrease along the line. Why says what stood in the way,
// when the owner knows.
func (l *Line[T]) Expire(now time.Time, why string) {
	for len(l.items) > 0 && !now.Before(l.items[0].Deadline) {
		it := l.items[0]
		l.remove(0)
		l.finish(it, expired(it, why))
		l.end(it)
	}
}

// Abort gives up everything: the publisher or its client was closed, or the log is out of reach for good.
func (l *Line[T]) Abort(c code.Code, why string) {
	if len(l.items) > 0 {
		defer l.end(l.items[0])
	}
	for _, it := range l.items {
		l.finish(it, giveUp(it, c, why))
	}
	clear(l.items)
	l.items, l.cursor = l.items[:0], 0
}

// end is for a batch that was not stored, for all that is known: no other of a named producer may pass it over.
func (l *Line[T]) end(it *Item[T]) {
	if l.cfg.Named == 0 || l.broken != nil {
		return
	}
	why := "the record of sequence " + strconv.FormatUint(it.Sequence, 10) + " was not stored, and none may pass it over"
	l.broken = code.New(code.Closed, "%s", why)
	l.Abort(code.Closed, why)
}

// Broken says why the line takes nothing more.
func (l *Line[T]) Broken() *code.Error { return l.broken }

// expired says honestly what is known about a batch whose time ran out.
func expired[T any](it *Item[T], why string) *code.Error {
	text := "the delivery timeout ran out"
	if why != "" {
		text += " (" + why + ")"
	}
	if it.maybe || it.onWire || it.last == nil {
		return giveUp(it, code.Timeout, text)
	}
	// The reason it was refused for is what the caller can act on. Whatever its class, nothing was stored.
	e := *it.last
	e.Message = text + ": " + e.Message
	if e.Class == code.ClassUnknown {
		e.Class = code.ClassRefused
	}
	return &e
}

// giveUp is for a batch that will not be tried again: unknown if it may be stored.
func giveUp[T any](it *Item[T], c code.Code, why string) *code.Error {
	e := code.New(c, "%s", why)
	if it.maybe || it.onWire {
		return e.WithClass(code.ClassUnknown)
	}
	if e.Class == code.ClassUnknown {
		e.Class = code.ClassRefused
	}
	return e
}

func (l *Line[T]) finish(it *Item[T], err *code.Error) {
	it.onWire = false
	l.done = append(l.done, Done[T]{Item: it, Err: err})
}

// remove takes the item at i out of the line.
func (l *Line[T]) remove(i int) {
	copy(l.items[i:], l.items[i+1:])
	l.items[len(l.items)-1] = nil
	l.items = l.items[:len(l.items)-1]
	if i < l.cursor {
		l.cursor--
	}
}
