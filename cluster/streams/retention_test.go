// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/control"
)

// numbered is a value that says which it is, from its first byte to its last.
func numbered(i uint64, size int) []byte {
	v := binary.BigEndian.AppendUint64(nil, i)
	return append(v, bytes.Repeat(v, size/8-1)...)
}

// SB-09, RT-10: retention takes segments from under paced readers, while it is still written: each reader gets the right bytes in
// contiguous runs, every hole is a stated skip of reason retention, nobody is stuck or thinks too early that it
// is at the end, and who has caught up lags by nothing.
func TestRetentionUnderPacedReaders(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(64 << 10)), MaxBytes: new(int64(1 << 20))})
	readers, total, size := 6, uint64(6_000), 4<<10 // 24 MB
	if !testing.Short() {
		readers, total = 20, 60_000
	}
	c := n.Connect()
	p := c.Publisher("s")
	if _, err := p.Publish(within(t), client.Record{Value: numbered(0, size)}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var written atomic.Bool // all of it: readers need not go slowly any more
	gaps := make([]int, readers)
	for i := range readers {
		s := subscribe(t, n.Connect(), "s", client.FromEarliest(), client.SkipLost(), client.ReceiveBuffer(64<<10), client.QueueLimits(16, 64<<10))
		wg.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			next := uint64(0)
			for r, err := range s.Records(t.Context()) {
				switch {
				case err != nil:
					t.Errorf("reader %d at %d: %v", i, next, err)
				case r.Gap == nil && r.Offset != next:
					t.Errorf("reader %d: offset %d, want %d, and no gap is stated", i, r.Offset, next)
				case r.Gap != nil && (r.Gap.From != next || r.Gap.To != r.Offset || r.Gap.Reason != client.GapRetention):
					t.Errorf("reader %d: gap %+v before offset %d, expected from %d", i, *r.Gap, r.Offset, next)
				case !bytes.Equal(r.Value, numbered(r.Offset, size)):
					t.Errorf("reader %d: offset %d holds what is of %d", i, r.Offset, binary.BigEndian.Uint64(r.Value))
				}
				if t.Failed() {
					return
				}
				if r.Gap != nil {
					gaps[i]++
				}
				if next = r.Offset + 1; next == total {
					return
				}
				if !written.Load() {
					<-pace.C
				}
			}
		})
	}
	ctx := t.Context()
	for i := uint64(1); i < total; i++ {
		p.PublishAsync(ctx, client.Record{Value: numbered(i, size)})
		if i%64 == 0 { // many batches, so that many segments
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	written.Store(true)
	wg.Wait()
	skipped := 0
	for _, g := range gaps {
		skipped += g
	}
	if skipped == 0 && !t.Failed() {
		t.Error("no reader was passed: the test has not reached retention")
	}
	o, err := c.Offsets(within(t), "s")
	if err != nil || o[0].Latest != total || o[0].Earliest == 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	if v, err := strconv.ParseFloat(metric(t, n, `margay_gap_records_total{reason="retention"}`), 64); err != nil || v <= 0 {
		t.Errorf("the gaps are not counted: %v, %v", v, err)
	}
	counted(t, n, `margay_log_start_records_total{cause="retention"}`, float64(o[0].Earliest), true)
	counted(t, n, "margay_subscription_queue_bytes", 0, true)
}

// RT-12: a damaged sealed segment blocks no other shard's retention, and goes by retention itself when its time
// comes.
func TestRetentionDropsADamagedSegment(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2), SegmentBytes: new(int64(16 << 10))})
	c := n.Connect()
	both := func(c *client.Client, rounds int) {
		t.Helper()
		p := c.Publisher("s")
		for range rounds {
			for key := range byte(8) { // some of them in each shard
				if _, err := p.Publish(within(t), client.Record{Key: []byte{key}, Value: make([]byte, 500)}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	both(c, 30)
	n.Stop()
	damage(t, n, 0)
	n.StartAgain()
	c = n.Connect()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	const kept = 32 << 10
	patch := control.StreamPatch{MaxBytes: new(int64(kept))}
	if _, err := api.UpdateStream(within(t), cc.Tenant, cc.Namespace, "s", 0, patch); err != nil {
		t.Fatal(err)
	}
	before, err := c.Offsets(within(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	both(c, 30)
	eventually(t, "retention to pass in both shards", func() bool {
		o, err := c.Offsets(within(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		return o[0].Earliest > before[0].Latest/2 && o[1].Earliest > before[1].Latest/2
	})
	for _, s := range []uint32{0, 1} { // the damage is gone with its segment
		o, err := c.Offsets(within(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		contiguous(t, take(t, subscribe(t, c, "s", client.FromEarliest(), client.Shards(s)), int(o[s].Latest-o[s].Earliest)))
	}
}

// A stream that drops its oldest goes on when the disk is full: no publish fails, a reader that is passed is told
// of the skip, and the operator sees what was given up and why.
func TestDropOldestEndToEnd(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) {
		if err := mem.MkdirAll(c.Dir); err != nil {
			t.Fatal(err)
		}
		c.FS, c.Reserve = mem, 256<<10
	}))
	mem.SetCapacity(4 << 20)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(256 << 10)), OnFull: new(control.OnFullDropOldest)})
	c := n.Connect()
	s := subscribe(t, c, "s", client.FromEarliest(), client.SkipLost(), client.ReceiveBuffer(64<<10), client.QueueLimits(16, 64<<10))
	p := c.Publisher("s")
	const total = 2_000 // 8 MB: twice the disk
	for i := range uint64(total) {
		p.PublishAsync(within(t), client.Record{Value: numbered(i, 4<<10)})
		if i%32 == 0 {
			if err := p.Flush(within(t)); err != nil {
				t.Fatalf("at %d: %v", i, err)
			}
		}
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	next, gaps := uint64(0), 0
	for r, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Gap != nil {
			if gaps++; r.Gap.From != next || r.Gap.To != r.Offset || r.Gap.Reason != client.GapRetention {
				t.Fatalf("gap %+v before offset %d, expected from %d", *r.Gap, r.Offset, next)
			}
		} else if r.Offset != next {
			t.Fatalf("offset %d, want %d, and no gap is stated", r.Offset, next)
		}
		if !bytes.Equal(r.Value, numbered(r.Offset, 4<<10)) {
			t.Fatalf("offset %d holds what is of another", r.Offset)
		}
		if next = r.Offset + 1; next == total {
			break
		}
	}
	o, err := c.Offsets(within(t), "s")
	if err != nil || o[0].Earliest == 0 || o[0].Latest != total {
		t.Fatalf("%+v, %v", o, err)
	}
	if gaps == 0 {
		t.Error("the reader was not passed")
	}
	counted(t, n, `margay_log_start_records_total{cause="full_disk"}`, float64(o[0].Earliest), true)
	counted(t, n, `margay_errors_total{code="storage_full"}`, 0, true)
}
