// SPDX-License-Identifier: Apache-2.0

// Package commit bounds how many logs of a process are flushed at one time: it flushes in the caller, starts no goroutine,
// touches nothing but the logs it is given, and refuses to let a thousand dirty shards become a thousand threads.
package commit

import "margay.dev/storage"

// Log is what a committer needs of a log; storage.Disk and storage.Memory have it.
type Log interface {
	Flush() (uint64, error)
	State() storage.State
}

// Round is what one flush made durable: how well appends are grouped.
type Round struct {
	Batches uint64
	Records uint64
}

// Committer shares flush slots among logs. A flush blocks an operating system thread for as long as the disk takes, and a
// disk gains little from more than some sixteen at once; so callers beyond the slots wait here, where waiting costs a
// goroutine and nothing else. Meanwhile their logs take more appends, which the one flush then covers.
type Committer struct {
	slots chan struct{}
	// Observe, when set before the first flush, is called after each one that succeeded, by its caller. It counts right
	// as long as one goroutine at a time flushes a log.
	Observe func(Round)
}

// DefaultSlots suits one solid-state disk: sixteen files flushed in parallel reach about five times the rate of one.
const DefaultSlots = 16

// New returns a committer of so many slots, DefaultSlots when slots is not positive.
func New(slots int) *Committer {
	if slots <= 0 {
		slots = DefaultSlots
	}
	return &Committer{slots: make(chan struct{}, slots)}
}

// Flush flushes the log in the calling goroutine as soon as a slot is free, and returns the flushed length.
func (c *Committer) Flush(log Log) (uint64, error) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	if c.Observe == nil {
		return log.Flush()
	}
	before := log.State()
	length, err := log.Flush()
	if err == nil {
		after := log.State()
		c.Observe(Round{
			Batches: length - min(length, before.Flushed),
			Records: after.FlushedOffset - min(after.FlushedOffset, before.FlushedOffset),
		})
	}
	return length, err
}
