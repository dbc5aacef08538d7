// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// unsteady is a disk whose flushes take from nothing to 30 ms.
func unsteady() vfs.FS {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(4, 4))
	return faultfs.Wrap(vfs.OS(), &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		mu.Lock()
		d := time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
		mu.Unlock()
		<-time.After(d) // a fault's time, not a wait
	}})
}

// GC-04: offset order, file order, delivery order and ack order are one, whatever the disk's timing.
func TestOneOrder(t *testing.T) {
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.FS = unsteady() }))
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(1 << 20))})
	const publishers, subscribers, maxSize = 32, 4, 100 << 10
	each := 12
	if !testing.Short() {
		each = 100
	}
	total := publishers * each
	live := make([]*client.Subscription, subscribers)
	for i := range live { // the burst is larger than a live queue
		live[i] = subscribe(t, n.Connect(), "s", client.Overflow(client.PolicyCatchUp))
	}
	acked := make([][]byte, total) // by offset
	half := make(chan struct{})
	var wg, halves sync.WaitGroup
	halves.Add(publishers)
	go func() { halves.Wait(); close(half) }()
	for i := range publishers {
		p := n.Connect().Publisher("s")
		wg.Go(func() { publishInOrder(t, p, i, each, maxSize, acked, halves.Done) })
	}
	streams := make([][]client.Record, 2*subscribers)
	for i := range streams {
		wg.Go(func() {
			if i < subscribers {
				streams[i] = readSome(t, live[i], total)
				return
			}
			<-half // these join in the middle
			s, err := n.Connect().Subscribe(within(t), "s", client.FromEarliest())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			streams[i] = readSome(t, s, total)
		})
	}
	wg.Wait()
	n.Stop()
	stored := inFiles(t, n)
	if len(stored) != total {
		t.Fatalf("%d records lie in the files, want %d", len(stored), total)
	}
	for offset, v := range acked {
		if !bytes.Equal(stored[offset], v) {
			t.Fatalf("offset %d was acknowledged for %.10q, and the files hold %.10q", offset, v, stored[offset])
		}
	}
	for i, recs := range streams {
		if len(recs) != total {
			t.Errorf("subscriber %d got %d records, want %d", i, len(recs), total)
		}
		for at, rec := range recs {
			if rec.Offset != uint64(at) || !bytes.Equal(rec.Value, stored[at]) {
				t.Errorf("subscriber %d got offset %d as its record %d, with %.10q; the files hold %.10q", i, rec.Offset, at, rec.Value, stored[at])
				break
			}
		}
	}
}

// publishInOrder publishes without waiting, and demands that the offsets rise as the records were published.
func publishInOrder(t *testing.T, p *client.Publisher, who, each, maxSize int, acked [][]byte, half func()) {
	half = sync.OnceFunc(half)
	defer half()
	rng := rand.New(rand.NewPCG(uint64(who), 1))
	ctx := within(t)
	futures, values := make([]client.Future, each), make([][]byte, each)
	for j := range each {
		values[j] = append(fmt.Appendf(nil, "%d/%d ", who, j), make([]byte, 10+rng.IntN(maxSize))...)
		futures[j] = p.PublishAsync(ctx, client.Record{Value: values[j]})
	}
	last := int64(-1)
	for j, f := range futures {
		a, err := f.Wait(ctx)
		if err != nil {
			t.Errorf("publisher %d, record %d: %v", who, j, err)
		} else {
			if int64(a.Offset) <= last || a.Offset >= uint64(len(acked)) {
				t.Errorf("publisher %d: offset %d acknowledged after %d", who, a.Offset, last)
				break
			}
			last = int64(a.Offset)
			acked[a.Offset] = values[j]
		}
		if j == each/2 {
			half()
		}
	}
}

// readSome reads count records without failing the test from another goroutine.
func readSome(t *testing.T, s *client.Subscription, count int) (recs []client.Record) {
	for rec, err := range s.Records(within(t)) {
		if err != nil {
			t.Errorf("after %d of %d records: %v", len(recs), count, err)
			return recs
		}
		if recs = append(recs, rec); len(recs) == count {
			break
		}
	}
	return recs
}

// inFiles is what the segments of a node's only shard hold, in the order in which it lies there.
func inFiles(t *testing.T, n *margaytest.Node) (values [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := segment.HeaderSize; at < len(data); {
			b, err := batch.CheckStored(data[at:])
			if err != nil {
				t.Fatalf("%s at %d: %v", name, at, err)
			}
			at += b.Size()
			if !b.HasOffsets() {
				continue
			}
			if b.BaseOffset() != uint64(len(values)) {
				t.Fatalf("%s: offset %d follows %d records", name, b.BaseOffset(), len(values))
			}
			for it := b.Records(); ; {
				var rec batch.Record
				ok, err := it.Next(&rec)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				values = append(values, bytes.Clone(rec.Value))
			}
		}
	}
	return values
}
