// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"margay.dev/broker/group"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/queue"
	"margay.dev/broker/shard"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// acking is the other end of a lane: it acks a frame of messages as soon as it has come.
type acking struct {
	id   uint64
	asks chan *wire.Settle
	n    atomic.Int64
}

func (a *acking) Write(parts ...[]byte) error {
	for rest := slices.Concat(parts...); len(rest) > 0; {
		h, err := wire.ParseHeader([wire.HeaderSize]byte(rest))
		if err != nil {
			return err
		}
		body := rest[wire.HeaderSize:][:h.Size]
		rest = rest[wire.HeaderSize+int(h.Size):]
		if h.Type != wire.TypeMessages {
			continue
		}
		var f wire.Messages
		if err := wire.ParseFrame(h, &f, body); err != nil {
			return err
		}
		var (
			first uint64
			count int
		)
		if f.Slice {
			s := batch.Slice(f.Batch)
			m, metas := batch.Meta{}, s.Metas()
			_, _ = metas.Next(&m)
			first, count = metas.Offset(), s.Count()
		} else {
			b := batch.Batch(f.Batch)
			first, count = b.BaseOffset(), b.Count()
		}
		a.n.Add(int64(count))
		a.asks <- &wire.Settle{GroupID: a.id, Resets: f.Resets, Generation: f.Generation, Runs: []wire.SettleRun{
			{Op: wire.SettleAck, HandOut: f.HandOut, Offset: first, Count: uint32(count)},
		}}
	}
	return nil
}

func BenchmarkConsume(b *testing.B) {
	for _, bm := range []struct {
		name            string
		batch, inFlight int
	}{{"batches of 100", 100, 2000}, {"single", 1, 2000}, {"one in flight", 100, 1}} {
		b.Run(bm.name, func(b *testing.B) { benchConsume(b, bm.batch, bm.inFlight) })
	}
}

func benchConsume(b *testing.B, perBatch, inFlight int) {
	b.Helper()
	l := hosttest.Log(func(l *control.Log) { l.Keep, l.Fsync = control.KeepUnsettled, control.FsyncNever })
	r := hosttest.Start(b, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
	s, pub := r.Shard(l.ID, 0), hosttest.NewAnswers()
	recs := make([]batch.Record, perBatch)
	for i := range recs {
		recs[i] = batch.Record{Value: make([]byte, 128), Timestamp: 1}
	}
	n := 0
	for corr := uint64(1); n < b.N; corr++ {
		q := hosttest.RequestOf(b, pub, corr, recs...)
		for s.Submit(q) != nil {
			at := corr - 1
			hosttest.Eventually(b, "room", func() bool { return uint64(pub.N.Load()) >= at })
		}
		n += perBatch
	}
	x := group.Command{ID: [16]byte{1}, Op: group.Create, Name: "workers", Group: 9}
	if _, err := s.Do(b.Context(), func(to any) shard.Event {
		x.To = to
		return &shard.GroupCommand{Command: x}
	}); err != nil {
		b.Fatal(err)
	}
	a := &acking{id: 9, asks: make(chan *wire.Settle, 100_000)}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.ResetTimer()
	f := &wire.Consume{Group: "workers", MaxInFlight: uint32(inFlight), Concurrency: 1}
	lane, _, err := queue.Open(ctx, a, f, []queue.Part{{Shard: s}}, queue.Config{
		Resolve: func(uint32) (queue.Shard, *code.Error) { return s, nil }, Ended: func(uint32, *code.Error) {}, Stats: &queue.Stats{},
	})
	if err != nil {
		b.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		lane.Serve(ctx)
	}()
	for settled := 0; settled < n; {
		ask := <-a.asks
		lane.Settle(ctx, 1, ask)
		settled += int(ask.Runs[0].Count)
	}
	hosttest.Eventually(b, "all to be settled", func() bool { out, _ := lane.Depth(); return out == 0 })
	b.StopTimer()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
	cancel()
	<-over
}
