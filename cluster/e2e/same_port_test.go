// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// recovery is how long clients may take to be served again once the node is ready. On a machine that does nothing else they
// take a fraction of it; the transport's idle timeout, by which they would notice at the latest, is half a minute.
const recovery = 25 * time.Second

// WR-09: a node that is killed and comes back on its port is noticed at once, by those who publish and by those who only
// listen, and not when the connection has been silent for too long.
func TestRestartIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	const publishers, idle = 50, 50
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "busy", Shards: new(2)})
	create(t, p, control.StreamSpec{Name: "quiet"})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var life atomic.Int64 // counts restarts
	var all, served, heard sync.WaitGroup
	served.Add(publishers)
	for i := range publishers {
		pub := p.Connect().Publisher("busy")
		publish(t, pub, fmt.Sprint(i), "before")
		all.Go(func() { publishOn(ctx, pub, fmt.Sprint(i), &life, served.Done) })
	}
	heard.Add(idle)
	listeners := make([]*reader, idle)
	for i := range listeners {
		r := &reader{name: fmt.Sprintf("idle-%d", i), next: map[uint32]uint64{}}
		s, err := p.Connect().Subscribe(within(t), "quiet", client.FromEarliest(), client.OnStatus(r.status))
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = r
		all.Go(func() { listen(ctx, t, s, r, 2, heard.Done) })
	}
	announcer := p.Connect().Publisher("quiet")
	publish(t, announcer, "k", "before")
	eventually(t, "all to have heard the record before", func() bool {
		for _, r := range listeners {
			if r.count() < 1 {
				return false
			}
		}
		return true
	})

	p.Kill()
	killed := time.Now()
	p.Start()
	ready := time.Now()
	life.Add(1)
	publish(t, announcer, "k", "after")
	in(t, "every publisher to be served again", ready, &served)
	in(t, "every idle subscriber to hear of a record", ready, &heard)
	if time.Since(killed) < recovery {
		for _, r := range listeners {
			for _, err := range r.idled() {
				t.Errorf("%s noticed the restart by the silence alone: %v", r.name, err)
			}
		}
	}
	cancel()
	all.Wait()
}

// in waits for all of them, and demands that it does not take longer than a recovery may.
func in(t *testing.T, what string, since time.Time, all *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		t.Logf("%s took %v", what, time.Since(since))
	case <-time.After(time.Until(since.Add(recovery))):
		t.Fatalf("waited %v for %s", recovery, what)
	}
}

// publishOn publishes one record after another, and says when the first is acknowledged after a restart.
func publishOn(ctx context.Context, pub *client.Publisher, who string, life *atomic.Int64, served func()) {
	served = sync.OnceFunc(served)
	pace := time.NewTicker(200 * time.Millisecond) // a publisher's own, so that fifty do not fill the machine
	defer pace.Stop()
	for {
		before := life.Load()
		if _, err := pub.Publish(ctx, record(who, "v")); err == nil && before > 0 {
			served()
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
	}
}

// listen reads until the test ends, and says when it has got this many records without a gap.
func listen(ctx context.Context, t *testing.T, s *client.Subscription, r *reader, records uint64, heard func()) {
	defer s.Close()
	for rec, err := range s.Records(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: %v", r.name, err)
			}
			return
		}
		if rec.Offset != r.count() || rec.Gap != nil {
			t.Errorf("%s: offset %d, gap %+v, want offset %d", r.name, rec.Offset, rec.Gap, r.count())
		}
		r.mu.Lock()
		r.next[rec.Shard] = rec.Offset + 1
		r.mu.Unlock()
		if rec.Offset+1 == records {
			heard()
		}
	}
}
