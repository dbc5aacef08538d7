// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire"
	"margay.dev/wire/control"
)

// gate holds up each flush of a disk until the test lets it go. While it is open, the disk is healthy.
type gate struct {
	fs      *faultfs.FS
	entered chan struct{}
	release chan struct{}
}

func newGate() *gate {
	return &gate{fs: faultfs.Wrap(vfs.OS()), entered: make(chan struct{}), release: make(chan struct{})}
}

func (g *gate) option() margaytest.Option {
	return margaytest.With(func(c *node.Config) { c.FS = g.fs })
}

// shut holds up the flushes from here on, and returns what lets all go.
func (g *gate) shut() (open func()) {
	opened := make(chan struct{})
	g.fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		select {
		case g.entered <- struct{}{}:
		case <-opened:
			return
		}
		select {
		case <-g.release:
		case <-opened:
		}
	}})
	return func() { close(opened); g.fs.Clear() }
}

// number reads a metric.
func number(t *testing.T, n *margaytest.Node, name string) int {
	t.Helper()
	v, err := strconv.ParseFloat(metric(t, n, name), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

const appended, waiting = "margay_append_batches_total", "margay_inbox_requests"

// shared lets one flush after the other go, each not before all that may be under way (window publishes, of total) has
// come to the broker, until done is closed. It returns how many flushes there were. Before the first publish, before
// batches were appended.
func (g *gate) shared(t *testing.T, n *margaytest.Node, before, window, total int, done <-chan struct{}) (flushes int) {
	t.Helper()
	flushed := 0 // batches, by the flushes before the one under way
	for {
		select {
		case <-g.entered:
		case <-done:
			return flushes
		case <-within(t).Done():
			t.Fatalf("waited %v for the next flush", patience)
		}
		flushes++
		var written int
		eventually(t, "all that may be under way to have come", func() bool {
			written = number(t, n, appended) - before
			return written+number(t, n, waiting) >= min(total, flushed+window)
		})
		flushed = written
		g.release <- struct{}{}
	}
}

// GC-02: connections that publish one record after another share the flushes, and so does one connection that has many
// under way. Each flush takes as long as all that may come meanwhile needs to come, whatever the speed of the machine.
func TestPublishersShareFlushes(t *testing.T) {
	const window, each = 64, 10
	for name, publish := range map[string]func(t *testing.T, n *margaytest.Node) (wait func()){
		"64 connections": func(t *testing.T, n *margaytest.Node) func() {
			t.Helper()
			var all sync.WaitGroup
			for range window {
				p := n.Connect().Publisher("s")
				all.Go(func() {
					for range each {
						if _, err := p.Publish(within(t), client.Record{Value: []byte("v")}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			return all.Wait
		},
		"64 under way on one": func(t *testing.T, n *margaytest.Node) func() {
			t.Helper()
			r := dial(t, n).authenticate(n)
			l := r.lane()
			var info wire.LogInfo
			r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
			frame := wire.AppendFrame(nil, 77, &wire.Publish{Log: info.Log, Batch: one(t)})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for sent, answered := 0, 0; answered < window*each; {
					if sent < min(answered+window, window*each) {
						sent++
						if err := l.Write(frame); err != nil {
							t.Error(err)
							return
						}
						continue
					}
					h, err := l.ReadHeader()
					if err == nil {
						err = l.Skip(h.Size)
					}
					if err != nil || h.Type != wire.TypePublished {
						t.Errorf("answer %d is %v, %v", answered, h.Type, err)
						return
					}
					answered++
				}
			}()
			return func() { <-done }
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			n := margaytest.Start(t, g.option())
			create(t, n, control.StreamSpec{Name: "s"})
			fill(t, n.Connect(), "s", 0, 1) // the shard has its file and its opening
			records, flushes := number(t, n, "margay_flush_records_sum"), number(t, n, "margay_flush_records_count")
			open := g.shut()
			defer open()
			before := number(t, n, appended)
			wait, done := publish(t, n), make(chan struct{})
			go func() { wait(); close(done) }()
			if took := g.shared(t, n, before, window, window*each, done); took > 2*each+4 {
				t.Errorf("%d records took %d flushes", window*each, took)
			}
			records, flushes = number(t, n, "margay_flush_records_sum")-records, number(t, n, "margay_flush_records_count")-flushes
			if records != window*each || flushes > 2*each+4 {
				t.Errorf("the metric says %d records in %d flushes", records, flushes)
			}
		})
	}
}

// GC-07: of a hundred who wait for one flush half give up: they are answered while it is still under way, the others with
// their offsets when it ends, and nothing of it is left behind.
func TestHalfOfTheWaitersGiveUp(t *testing.T) {
	g := newGate()
	n := margaytest.Start(t, g.option())
	create(t, n, control.StreamSpec{Name: "s"})
	rounds, baseline := 3, 0
	if !testing.Short() {
		rounds = 50
	}
	pubs := make([]*client.Publisher, 10)
	for i := range pubs {
		pubs[i] = n.Connect().Publisher("s")
		if _, err := pubs[i].Publish(within(t), client.Record{Value: []byte("before")}); err != nil { // its lane is there
			t.Fatal(err)
		}
	}
	told := map[string]client.Class{} // 0: acknowledged
	for round := range rounds {
		giveUpHalf(t, g, pubs, round, told)
		if round == 0 {
			baseline = runtime.NumGoroutine()
		}
	}
	for i := range 100 {
		if _, err := pubs[i%len(pubs)].Publish(within(t), client.Record{Value: []byte("after")}); err != nil {
			t.Fatalf("a publish behind all that: %v", err)
		}
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= baseline+10 })
	stored := map[string]int{}
	for _, rec := range readToTheEnd(t, n, "s") {
		stored[string(rec.Value)]++
	}
	unknown := 0
	for v, class := range told {
		switch class {
		case 0:
			if stored[v] != 1 {
				t.Errorf("%s was acknowledged and is stored %d times", v, stored[v])
			}
		case client.Unknown:
			unknown++
			if stored[v] > 1 {
				t.Errorf("%s, of unknown outcome, is stored %d times", v, stored[v])
			}
		default:
			if stored[v] != 0 {
				t.Errorf("%s ended with class %v and is stored %d times", v, class, stored[v])
			}
		}
	}
	if unknown == 0 {
		t.Error("no outcome was unknown: the test has not reached what it tests")
	}
}

// giveUpHalf has every publisher publish ten records at once while no flush ends, and gives up half of them.
func giveUpHalf(t *testing.T, g *gate, pubs []*client.Publisher, round int, told map[string]client.Class) {
	t.Helper()
	open := g.shut()
	impatient, giveUp := context.WithCancel(within(t))
	defer giveUp()
	var mu sync.Mutex
	var all, gone sync.WaitGroup
	for i := range 10 * len(pubs) {
		value := fmt.Sprintf("%d/%d", round, i)
		ctx, of := within(t), &all
		if i%2 == 0 {
			ctx, of = impatient, &gone
		}
		of.Go(func() {
			_, err := pubs[i%len(pubs)].Publish(ctx, client.Record{Value: []byte(value)})
			var class client.Class
			if err != nil {
				class = client.AsError(err).Class
			}
			if i%2 == 1 && err != nil {
				t.Errorf("%s, whose caller waited: %v", value, err)
			}
			mu.Lock()
			defer mu.Unlock()
			told[value] = class
		})
	}
	select {
	case <-g.entered:
	case <-within(t).Done():
		t.Fatalf("waited %v for a flush", patience)
	}
	giveUp()
	gone.Wait() // no flush has ended yet, nor will one before this
	open()
	all.Wait()
}

// readToTheEnd is what a stream holds.
func readToTheEnd(t *testing.T, n *margaytest.Node, stream string) (all []client.Record) {
	t.Helper()
	s := subscribe(t, n.Connect(), stream, client.FromEarliest(), client.UntilMark())
	for rec, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}
