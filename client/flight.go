// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"margay.dev/client/internal/order"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// flight is one batch from its first record to its fate. Futures of its records point to it: one allocation serves
// them all.
type flight struct {
	item  item // its place in the lane's order
	shard uint32
	// builder holds the records until the batch is first written, encoded its bytes from then on.
	builder *batch.Builder
	encoded batch.Batch
	count   int
	// charged is what the client's memory bound is charged until done.
	charged int64
	keyless bool // holds a record that any shard may have: the next batch of those goes to another shard
	// conditions of its records, all of which must hold.
	conditions []wire.Condition
	// derives are the records that the leader makes, by their place in the batch, and sums what the increments came to.
	derives []wire.Derive
	sums    []int64
	// alone: its records stand or fall together. Otherwise they share it by chance, and out are those that were refused
	// for what they are, by their index.
	alone    bool
	out      []left
	deadline time.Time

	// done is closed when ack or err is final.
	done chan struct{}
	ack  Ack // of the first record
	err  *Error
	// heard: somebody was told the result. A failure that nobody heard of is told by Flush.
	heard atomic.Bool
}

type item = order.Item[*flight]

// encode makes the bytes for the names the line gave the batch. Sent again under the same names, they are the same
// bytes.
func (f *flight) encode(it *item, pool *builders, c Compression) error {
	if f.encoded != nil && f.encoded.ProducerID() == it.ID && f.encoded.ProducerSequence() == it.Sequence {
		return nil
	}
	b := f.builder
	if b == nil { // it goes on under a new producer id
		b = pool.get()
		if err := refill(b, f.encoded, -1); err != nil {
			return fmt.Errorf("encode batch again: %w", err)
		}
	}
	encoded, err := b.BuildTo(pool.buffer(), it.ID, it.Sequence, c)
	if err != nil {
		return fmt.Errorf("encode batch: %w", err)
	}
	f.encoded, f.builder = encoded, nil
	pool.put(b)
	return nil
}

// stored sets the fate of the batch: where it lies.
func (f *flight) stored(p *wire.Published) {
	f.ack = Ack{
		Shard: f.shard, Offset: p.BaseOffset, Generation: p.Generation, AppendTime: time.UnixMicro(p.AppendTime),
		Replicas: int(p.Replicas), Flushed: p.Reached.Has(wire.ReachedFlushed),
		Committed: p.Reached.Has(wire.ReachedCommitted), Duplicate: p.Reached.Has(wire.ReachedDuplicate),
	}
	f.sums = slices.Clone(p.Sums)
}

// result is the fate of the record at index; only once done is closed.
func (f *flight) result(index uint32) (Ack, error) {
	if f.err != nil {
		f.heard.Store(true)
		if _, err := f.place(index); err != nil {
			return Ack{}, err
		}
		return Ack{}, f.err
	}
	at, err := f.place(index)
	if err != nil {
		return Ack{}, err
	}
	a := f.ack
	a.Offset += uint64(at)
	return a, nil
}

func (f *flight) wait(ctx context.Context, index uint32) (Ack, error) {
	select {
	case <-f.done:
		return f.result(index)
	default:
	}
	select {
	case <-f.done:
		return f.result(index)
	case <-ctx.Done():
		return Ack{}, ended(ctx, Unknown, "publish to shard %d: the record goes on without its caller", f.shard)
	}
}

// Future is the fate of a record that was accepted for publishing. It is a small value; copy it freely.
type Future struct {
	f     *flight
	index uint32
	err   *Error // it was not accepted
}

// Wait returns the acknowledgement. When ctx ends first, the error's class is unknown and the record goes on: Wait
// again to hear what became of it.
func (f Future) Wait(ctx context.Context) (Ack, error) {
	switch {
	case f.err != nil:
		return Ack{}, f.err
	case f.f == nil:
		return Ack{}, errClosed("an empty future")
	}
	return f.f.wait(ctx, f.index)
}

// Done is closed when Wait no longer waits.
func (f Future) Done() <-chan struct{} {
	if f.f == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return f.f.done
}

// builders lends batch builders and buffers for what they build. It keeps a few: as many as a busy publisher fills, and
// has unanswered, at a time.
type builders struct {
	limits  batch.Limits
	free    chan *batch.Builder
	encoded chan []byte
}

const (
	keepBuilders = 4
	// keepEncoded is the largest buffer that is kept.
	keepEncoded = 512 << 10
)

func newBuilders(limits batch.Limits) *builders {
	return &builders{limits: limits, free: make(chan *batch.Builder, keepBuilders), encoded: make(chan []byte, keepBuilders)}
}

// buffer is one to encode into. It is empty, and not nil, when there is none to use again.
func (p *builders) buffer() []byte {
	select {
	case b := <-p.encoded:
		return b
	default:
		return []byte{}
	}
}

// answered takes back what was encoded, once its answer has come: then the transport has done with it.
func (p *builders) answered(b []byte) {
	if cap(b) == 0 || cap(b) > keepEncoded {
		return
	}
	select {
	case p.encoded <- b:
	default:
	}
}

func (p *builders) get() *batch.Builder {
	select {
	case b := <-p.free:
		return b
	default:
		return batch.NewBuilder(p.limits)
	}
}

func (p *builders) put(b *batch.Builder) {
	b.Reset()
	select {
	case p.free <- b:
	default:
	}
}
