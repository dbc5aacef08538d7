// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire/code"
)

// work counts the calls of a handler, each of which waits to be released.
type work struct {
	mu      sync.Mutex
	calls   map[string]int
	failed  error
	begun   chan struct{}
	release chan struct{}
}

func newWork() *work {
	return &work{calls: map[string]int{}, begun: make(chan struct{}, 100), release: make(chan struct{})}
}

func (w *work) handle(ctx context.Context, m *client.Message) error {
	w.mu.Lock()
	w.calls[string(m.Value)]++
	w.mu.Unlock()
	w.begun <- struct{}{}
	select {
	case <-w.release:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = context.Cause(ctx)
		return w.failed
	}
}

func (w *work) once(t *testing.T, values ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range values {
		if w.calls[v] != 1 {
			t.Errorf("%s was worked on %d times", v, w.calls[v])
		}
	}
	if w.failed != nil {
		t.Errorf("a handler was ended: %v", w.failed)
	}
}

// A broker that starts again knows no claims, and hands out what is being worked on anew: here that is no other message, and its
// claim is kept alive and settled as if nothing had been.
func TestWorkGoesOnOverARestart(t *testing.T) {
	for name, end := range map[string]func(b *fakebroker.Broker){
		"restart":    func(b *fakebroker.Broker) { b.Stop(); b.Start() },
		"shard":      func(b *fakebroker.Broker) { b.EndShard(0, code.Opening) },
		"connection": func(b *fakebroker.Broker) { b.KillConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			b, l, q := queued(t, 1)
			b.Group(l, "workers").Settings.AckWait = 400_000
			b.Feed(l, 0, "a", "b", "c")
			g := consume(t, q)
			w := newWork()
			stop := handling(t, g, 2, w.handle)
			<-w.begun
			<-w.begun
			end(b)
			before := len(b.Extends())
			eventually(t, "claims to be extended again", func() bool { return len(b.Extends()) >= before+3 })
			close(w.release)
			gs := b.Group(l, "workers").Shards[0]
			eventually(t, "all to be settled", func() bool { n, _ := settledIn(b, gs); return n == 3 })
			_ = stop()
			w.once(t, "a", "b", "c")
		})
	}
}

// What an operator wants done anew is done anew, also by who works on it.
func TestWorkOfAGroupThatBeganAgainIsDoneAnew(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	g := consume(t, q)
	w := newWork()
	stop := handling(t, g, 2, w.handle)
	<-w.begun
	gs := b.Group(l, "workers").Shards[0]
	b.Change(func() { gs.Resets++ })
	b.EndShard(0, code.Opening)
	<-w.begun
	close(w.release)
	_ = stop()
}

// What is worked on is not given back with what waits beside it.
func TestDrainKeepsWhatWasAdopted(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a", "b", "c")
	g := consume(t, q)
	w := newWork()
	stop := handling(t, g, 1, w.handle)
	<-w.begun
	joins := len(b.Consumes())
	b.EndShard(0, code.Opening)
	eventually(t, "the shard to be joined again", func() bool { return len(b.Consumes()) > joins })
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(within(t)) }()
	gs := b.Group(l, "workers").Shards[0]
	eventually(t, "the others to be given back", func() bool { return len(b.Settles()) > 0 })
	close(w.release)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	_ = stop()
	if n, _ := settledIn(b, gs); n != 1 {
		t.Fatalf("%d are settled", n)
	}
	w.once(t, "a")
}
