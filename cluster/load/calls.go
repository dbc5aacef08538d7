// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"context"
	"sync"
)

// Calls makes calls that return with their answers, in as many goroutines as may be under way: a client that has no other way.
type Calls struct {
	call  func(key string, value []byte) error
	done  Done
	jobs  chan job // nil when the caller's goroutine does it
	ended sync.WaitGroup
}

type job struct {
	key   string
	value []byte
	at    int64
}

// NewCalls is ready for n calls at once. call must end by itself once its connection is closed.
func NewCalls(n int, done Done, call func(key string, value []byte) error) *Calls {
	c := &Calls{call: call, done: done}
	if n <= 1 {
		return c
	}
	c.jobs = make(chan job)
	for range n {
		c.ended.Go(func() {
			for j := range c.jobs {
				c.done(j.at, 1, c.call(j.key, j.value))
			}
		})
	}
	return c
}

// Do begins a call, or makes it when there is but one at a time. The value is the caller's again when it returns.
func (c *Calls) Do(ctx context.Context, key string, value []byte, at int64) error {
	if c.jobs == nil {
		c.done(at, 1, c.call(key, value))
		return nil
	}
	select {
	case c.jobs <- job{key, bytes.Clone(value), at}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for the calls, whose connection has been closed.
func (c *Calls) Close() {
	if c.jobs != nil {
		close(c.jobs)
		c.ended.Wait()
	}
}
