// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"margay.dev/broker/queue"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// message is one that came to the consumer.
type message struct {
	shard           uint32
	handOut, offset uint64
	attempt         uint32
	value           string
}

// consumer is the other end of a lane.
type consumer struct {
	t       testing.TB
	mu      sync.Mutex
	gate    chan struct{} // while it is there, nothing is read
	broken  error         // what writing comes to
	real    bool          // the shards are
	got     []message
	whole   int // batches that came as they are stored
	slices  int
	writes  int
	settled map[uint64]*wire.Settled
	extends map[uint64]*wire.Extended
	errs    map[uint64]*code.Error
	ends    []wire.ConsumeEnd
	notes   []wire.Progress
}

func newConsumer(t testing.TB) *consumer {
	return &consumer{t: t, settled: map[uint64]*wire.Settled{}, extends: map[uint64]*wire.Extended{}, errs: map[uint64]*code.Error{}}
}

func (c *consumer) Write(parts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gate := c.gate; gate != nil {
		c.mu.Unlock()
		<-gate
		c.mu.Lock()
	}
	if c.broken != nil {
		return c.broken
	}
	c.writes++
	for rest := slices.Concat(parts...); len(rest) > 0; {
		h, err := wire.ParseHeader([wire.HeaderSize]byte(rest))
		if err != nil {
			c.t.Error(err)
			return err
		}
		c.frame(h, rest[wire.HeaderSize:][:h.Size])
		rest = rest[wire.HeaderSize+int(h.Size):]
	}
	return nil
}

func parsed[F wire.Frame](c *consumer, h wire.Header, body []byte, f F) F {
	if err := wire.ParseFrame(h, f, body); err != nil {
		c.t.Errorf("%v: %v", h.Type, err)
	}
	return f
}

func (c *consumer) frame(h wire.Header, body []byte) {
	switch h.Type {
	case wire.TypeMessages:
		c.messages(parsed(c, h, body, &wire.Messages{}))
	case wire.TypeSettled:
		c.settled[h.Corr] = parsed(c, h, body, &wire.Settled{})
	case wire.TypeExtended:
		c.extends[h.Corr] = parsed(c, h, body, &wire.Extended{})
	case wire.TypeError:
		c.errs[h.Corr] = parsed(c, h, body, &wire.Error{}).Err()
	case wire.TypeConsumeEnd:
		c.ends = append(c.ends, *parsed(c, h, body, &wire.ConsumeEnd{}))
	case wire.TypeProgress:
		c.notes = append(c.notes, *parsed(c, h, body, &wire.Progress{}))
	default:
		c.t.Errorf("a frame %v", h.Type)
	}
}

type walk interface {
	Next(r *batch.Record) (bool, error)
	Offset() uint64
}

func (c *consumer) messages(f *wire.Messages) {
	if !c.real && (f.Generation != generation || f.Resets != resets) {
		c.t.Errorf("messages of generation %d, %d", f.Generation, f.Resets)
	}
	var records walk
	if f.Slice {
		s, err := batch.CheckSlice(f.Batch)
		if err != nil || s.Size() != len(f.Batch) {
			c.t.Error(err)
			return
		}
		c.slices++
		records = s.Records()
	} else {
		b, err := batch.CheckStored(f.Batch)
		if err != nil || b.Size() != len(f.Batch) {
			c.t.Error(err)
			return
		}
		c.whole++
		records = b.Records()
	}
	attempts := map[uint32]uint32{}
	for _, a := range f.Attempts {
		attempts[a.Index] = a.Attempt
	}
	var rec batch.Record
	for i := uint32(0); ; i++ {
		ok, err := records.Next(&rec)
		if err != nil {
			c.t.Error(err)
		}
		if !ok {
			return
		}
		c.got = append(c.got, message{f.Shard, f.HandOut + uint64(i), records.Offset(), max(1, attempts[i]), string(rec.Value)})
	}
}

// take hands over the messages that have come.
func (c *consumer) take() []message {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

func (c *consumer) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

func (c *consumer) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
	c.gate = nil
}

// rig is a lane over shards, in a bubble.
type rig struct {
	t      testing.TB
	shards []*fake
	c      *consumer
	lane   *queue.Lane
	stats  queue.Stats
	ok     *wire.Consumed
	cancel context.CancelCauseFunc
	ctx    context.Context
	over   chan struct{}
	corr   uint64
	told   []uint32 // shards whose end was told
}

// begin opens a lane over shards and serves it until the test ends.
func begin(t testing.TB, inFlight uint32, shards ...*fake) *rig {
	t.Helper()
	r := &rig{t: t, shards: shards, c: newConsumer(t), over: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	f := &wire.Consume{Group: "workers", Consumer: "me", MaxInFlight: inFlight, Concurrency: 3}
	var parts []queue.Part
	for _, s := range shards {
		f.Shards = append(f.Shards, s.id)
		parts = append(parts, queue.Part{ID: s.id, Shard: s})
	}
	var err error
	r.lane, r.ok, err = queue.Open(r.ctx, r.c, f, parts, queue.Config{
		Resolve: func(n uint32) (queue.Shard, *code.Error) {
			for _, s := range r.shards {
				if s.id == n {
					return s, nil
				}
			}
			return nil, code.New(code.NotLeader, "elsewhere")
		},
		Ended: func(n uint32, _ *code.Error) { r.told = append(r.told, n) },
		Stats: &r.stats,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.over)
		if end := r.lane.Serve(r.ctx); end != nil {
			r.c.mu.Lock()
			r.c.ends = append(r.c.ends, *end)
			r.c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		r.cancel(nil)
		<-r.over
	})
	return r
}

func (r *rig) settle(op wire.SettleOp, ms ...message) (corr uint64) {
	r.t.Helper()
	f := &wire.Settle{GroupID: groupID, Shard: ms[0].shard, Resets: resets, Generation: generation}
	for _, m := range ms {
		f.Runs = append(f.Runs, wire.SettleRun{Op: op, HandOut: m.handOut, Offset: m.offset, Count: 1})
	}
	r.corr++
	r.lane.Settle(r.ctx, r.corr, f)
	return r.corr
}

// ack settles messages of whatever shards.
func (r *rig) ack(ms ...message) {
	r.t.Helper()
	for _, m := range ms {
		r.settle(wire.SettleAck, m)
	}
	synctest.Wait()
}

// out is how many messages the shards think the consumer has.
func (r *rig) out() (n int) {
	synctest.Wait()
	for _, s := range r.shards {
		n += len(s.claims)
	}
	return n
}
