// SPDX-License-Identifier: Apache-2.0

// Package commit bounds how many flushes of one process run at once; it flushes in the caller's goroutine
// and refuses to start one of its own.
//
// A flush holds an operating system thread for as long as the disk takes. With many dirty shards on one
// disk, those beyond the bound wait for a slot, and what is appended meanwhile goes down in their flush:
// that is what makes few flushes of many.
package commit

// Flusher is what is flushed: a log.
type Flusher interface {
	Flush() (uint64, error)
}

// Committer hands out the slots.
type Committer struct{ slots chan struct{} }

// New makes a committer of so many slots, at least one.
func New(slots int) *Committer { return &Committer{slots: make(chan struct{}, max(slots, 1))} }

// Flush flushes l when a slot is free and returns its flushed length.
func (c *Committer) Flush(l Flusher) (uint64, error) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	return l.Flush()
}
