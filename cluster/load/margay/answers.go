// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"
	"sync"

	"margay.dev/client"
	"margay.dev/cluster/load"
)

// answers are what publishes, or puts, wait for: a lane for each shard, whose answers come in order.
type answers struct {
	done  load.Done
	lanes []*lane
	all   sync.WaitGroup
}

// lane is the messages to one shard, which are answered in order: one goroutine waits for the oldest.
type lane struct {
	key  []byte // what leads to the shard; nil when there is but one, and of puts
	wake chan struct{}

	mu      sync.Mutex
	pending []pending // oldest first
	closed  bool
}

// pending is messages of one batch with one stamp: they have one fate.
type pending struct {
	future client.Future
	batch  <-chan struct{}
	at     int64
	n      int
}

// open adds a lane, whose answers are told of unless each is waited for where it is asked for.
func (a *answers) open(key []byte, wait bool) {
	l := &lane{key: key, wake: make(chan struct{}, 1)}
	a.lanes = append(a.lanes, l)
	if !wait {
		a.all.Go(func() { a.reap(l) })
	}
}

// add puts the message behind the others of its batch.
func (l *lane) add(f client.Future, at int64) {
	batch := f.Done()
	l.mu.Lock()
	if n := len(l.pending); n > 0 && l.pending[n-1].batch == batch && l.pending[n-1].at == at {
		l.pending[n-1].n++
		l.mu.Unlock()
		return
	}
	l.pending = append(l.pending, pending{future: f, batch: batch, at: at, n: 1})
	first := len(l.pending) == 1
	l.mu.Unlock()
	if first {
		l.signal()
	}
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns what has come since, in exchange for the room of what came before. Messages of the last batch may still be
// added behind it: they wait for nothing more then.
func (l *lane) take(room []pending) (taken []pending, more bool) {
	for {
		l.mu.Lock()
		taken, closed := l.pending, l.closed
		if len(taken) > 0 {
			l.pending = room[:0]
			l.mu.Unlock()
			return taken, true
		}
		l.mu.Unlock()
		if closed {
			return nil, false
		}
		<-l.wake
	}
}

// reap tells of the answers.
func (a *answers) reap(l *lane) {
	var taken []pending
	for {
		var more bool
		if taken, more = l.take(taken); !more {
			return
		}
		for i := range taken {
			// It ends by itself: with an answer, or its delivery timeout, or the client.
			_, err := taken[i].future.Wait(context.Background())
			a.done(taken[i].at, taken[i].n, err)
			taken[i] = pending{}
		}
	}
}

// close waits until all have been told of: the client has been closed, or nothing is under way.
func (a *answers) close() {
	for _, l := range a.lanes {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.signal()
	}
	a.all.Wait()
}
