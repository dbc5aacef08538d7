// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"sync"

	"margay.dev/client"
)

// tail follows the stream live, through the crash, and checks that each shard's records come in order,
// each once.
type tail struct {
	sub  *client.Subscription
	stop context.CancelFunc
	done sync.WaitGroup

	all chan struct{} // closed when as many records came as were published, or none come any more

	mu       sync.Mutex
	seen     int
	disorder int
	err      error
}

// samples is how many of the first records are shown: enough to see that they are real.
const samples = 3

func follow(sub *client.Subscription, want int, show func(client.Record)) *tail {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tail{sub: sub, stop: cancel, all: make(chan struct{})}
	t.done.Go(func() {
		defer close(t.all)
		next := map[uint32]uint64{}
		for rec, err := range sub.Records(ctx) {
			if err != nil {
				t.fail(err)
				return
			}
			inOrder := rec.Offset == next[rec.Shard] && rec.Gap == nil
			next[rec.Shard] = rec.Offset + 1
			n := t.count(inOrder)
			if n <= samples {
				show(rec)
			}
			if n == want {
				return
			}
		}
	})
	return t
}

func (t *tail) count(inOrder bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen++
	if !inOrder {
		t.disorder++
	}
	return t.seen
}

func (t *tail) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// wait returns once every published record came.
func (t *tail) wait(ctx context.Context) (seen, disorder int, err error) {
	select {
	case <-t.all:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.seen, t.disorder, fmt.Errorf("tail: %w", t.err)
	}
	if err := ctx.Err(); err != nil {
		return t.seen, t.disorder, fmt.Errorf("tail, after %d records: %w", t.seen, err)
	}
	return t.seen, t.disorder, nil
}

func (t *tail) close() {
	t.stop()
	t.sub.Close()
	t.done.Wait()
}
