// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/process"
)

// metric is a number that a node exposes.
func metric(t *testing.T, p *process.Process, name string) float64 {
	t.Helper()
	all, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	v, ok := all[name]
	if !ok {
		t.Fatalf("no metric %s", name)
	}
	return v
}

// rssOf is what a node's process takes, in MiB.
func rssOf(t *testing.T, p *process.Process) float64 {
	t.Helper()
	return metric(t, p, "process_resident_memory_bytes") / (1 << 20)
}

// cpuOf is the time that a node's process has worked.
func cpuOf(t *testing.T, p *process.Process) time.Duration {
	t.Helper()
	return time.Duration(metric(t, p, "process_cpu_seconds_total") * float64(time.Second))
}

// Messages of 8 MiB with many in flight, to consumers that read and to some that never do, make the node hold no more than a few of
// them.
func TestHugeMessagesAreNotHeld(t *testing.T) {
	t.Parallel()
	count := 6
	if !testing.Short() {
		count = 60
	}
	p := process.Start(t, process.Config{Env: []string{"GOMEMLIMIT=off"}})
	p.Must(nil, "queue", "create", "q", "--shards", "2", "--fsync", "never")
	q := p.Connect().Queue("q")
	patient := func(group string) string { // no claim ends on a machine that is slow
		if err := q.Group(group).Ensure(await.Within(t), client.GroupConfig{AckWait: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return group
	}
	value := noise(8<<20 - 1000)
	var lazy []*client.Consumer
	for i := range 4 {
		g, err := q.Consume(await.Within(t), patient(fmt.Sprint("lazy", i)), client.MaxInFlight(100))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		lazy = append(lazy, g)
	}
	before := rssOf(t, p)
	for range count {
		if _, err := q.Push(await.Within(t), client.Record{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	pushed := rssOf(t, p)
	var wg sync.WaitGroup
	for i := range 3 {
		group := patient(fmt.Sprint("g", i))
		wg.Go(func() {
			g, err := q.Consume(await.Within(t), group, client.MaxInFlight(100))
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			left := count
			ctx, cancel := context.WithCancel(await.Within(t))
			defer cancel()
			for m, err := range g.Messages(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(m.Value, value) || m.Attempt != 1 {
					t.Errorf("message %v: %d bytes, attempt %d", m.ID(), len(m.Value), m.Attempt)
				}
				if err := m.Ack(ctx); err != nil {
					t.Error(err)
				}
				if left--; left == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	after := rssOf(t, p)
	t.Logf("%.0f MiB, with %d messages pushed %.0f, consumed %.0f", before, count, pushed, after)
	if after-before > 500 && !process.RaceDetector() {
		t.Errorf("the node grew from %.0f to %.0f MiB", before, after)
	}
	for _, g := range lazy {
		g.Close()
	}
}

// Many groups, each with a consumer or none, and messages that are due in a year, cost an idle node next to nothing.
func TestManyGroupsAtRestCostNothing(t *testing.T) {
	t.Parallel()
	groups := 300
	if !testing.Short() {
		groups = 10_000
	}
	p := process.Start(t, process.Config{})
	p.Must(nil, "queue", "create", "q", "--fsync", "never")
	c := p.Connect()
	q := c.Queue("q")
	hostilePush(t, q, 1000, 0)
	for i := range 1000 {
		q.PushAsync(t.Context(), client.Record{Value: fmt.Append(nil, i), Delay: 1000 * time.Hour})
	}
	if err := q.Flush(await.Within(t)); err != nil {
		t.Fatal(err)
	}
	before := rssOf(t, p)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for i := w; i < groups; i += 50 {
				if err := q.Group(fmt.Sprint("g", i)).Ensure(await.Within(t), client.GroupConfig{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d groups in %v", groups, time.Since(began))
	if groups == 10_000 {
		err := q.Group("one-more").Ensure(await.Within(t), client.GroupConfig{})
		t.Logf("one more: %v", err)
		if err == nil {
			t.Error("there is one group more than there may be")
		}
	}
	var consumers []*client.Consumer
	for i := range 20 {
		g, err := q.Consume(await.Within(t), fmt.Sprint("g", i), client.MaxInFlight(10))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		consumers = append(consumers, g)
	}
	began = time.Now()
	for i := range 2000 {
		if _, err := q.Push(await.Within(t), client.Record{Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("2000 pushes in %v", time.Since(began))
	began = time.Now()
	all, err := q.Groups(await.Within(t))
	if err != nil || len(all) != groups {
		t.Errorf("%d groups are listed: %v", len(all), err)
	}
	t.Logf("listed in %v; %.0f MiB, before %.0f", time.Since(began), rssOf(t, p), before)
	_ = consumers
	cpu := cpuOf(t, p)
	began = time.Now()
	tick := time.NewTimer(3 * time.Second)
	<-tick.C
	used, took := cpuOf(t, p)-cpu, time.Since(began)
	t.Logf("at rest %v of %v", used, took)
	began = time.Now()
	p.Kill()
	p.Start()
	again, err := p.Connect().Queue("q").Groups(await.Within(t))
	if err != nil || len(again) != groups {
		t.Errorf("%d groups are listed after a kill: %v", len(again), err)
	}
	t.Logf("again after %v; %.0f MiB", time.Since(began), rssOf(t, p))
}
