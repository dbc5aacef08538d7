// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Answers is the lane of a publisher: it collects what that is told, by correlation id.
type Answers struct {
	Mu    sync.Mutex
	Acks  map[uint64]shard.Ack
	Errs  map[uint64]*code.Error
	Order []uint64
	N     atomic.Int64 // answers so far
	// Before, when set, says whether what is acknowledged now still counts: the power has not gone yet.
	Before func() bool
	// Each, when set, is called behind every answer, on the shard's goroutine.
	Each func(corr uint64)
}

// NewAnswers makes an empty one.
func NewAnswers() *Answers {
	return &Answers{Acks: map[uint64]shard.Ack{}, Errs: map[uint64]*code.Error{}}
}

// Answer implements host.Replier.
func (a *Answers) Answer(r *host.Request, ack shard.Ack, err *code.Error) bool {
	a.take(r.Correlation, ack, err)
	if a.Each != nil {
		a.Each(r.Correlation)
	}
	return true
}

func (a *Answers) take(corr uint64, ack shard.Ack, err *code.Error) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if err != nil {
		a.Errs[corr] = err
	} else if a.Before == nil || a.Before() {
		a.Acks[corr] = ack
		a.Order = append(a.Order, corr)
	}
	a.N.Add(1)
}

// Flush implements host.Replier.
func (a *Answers) Flush() {}

// Value is what Request publishes unless it is told: it differs for each correlation id.
func Value(corr uint64) []byte { return fmt.Appendf(nil, "value-%06d-%0100d", corr, corr) }

// Request is a publish of a batch of these values, or of Value alone.
func Request(t testing.TB, a *Answers, corr uint64, values ...[]byte) *host.Request {
	t.Helper()
	if len(values) == 0 {
		values = [][]byte{Value(corr)}
	}
	recs := make([]batch.Record, len(values))
	for i, v := range values {
		recs[i] = batch.Record{Value: v, Timestamp: 1}
	}
	return RequestOf(t, a, corr, recs...)
}

// RequestOf is a publish of a batch of these records.
func RequestOf(t testing.TB, a *Answers, corr uint64, recs ...batch.Record) *host.Request {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, rec := range recs {
		if err := bl.Add(rec); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	buf := append(make([]byte, wire.PublishHead), b...)
	r := &host.Request{Buffer: buf, Head: wire.PublishHead, Correlation: corr, Lane: a}
	r.Publish = shard.Publish{Batch: batch.Batch(buf[wire.PublishHead:]), To: r}
	return r
}

// Records is all that the shard's readers may see: offset to value.
func Records(t testing.TB, s *host.Shard) map[uint64]string {
	t.Helper()
	out := map[uint64]string{}
	seq := s.View().Start.Sequence
	for seq < s.Hub().Sequence() {
		chunk, err := s.Read(nil, seq, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for len(chunk) > 0 {
			b, err := batch.CheckStored(chunk)
			if err != nil {
				t.Fatal(err)
			}
			chunk = chunk[b.Size():]
			seq = b.Sequence() + 1
			if b.HasOffsets() {
				each(t, b, func(offset uint64, value []byte) { out[offset] = string(value) })
			}
		}
	}
	return out
}

func each(t testing.TB, b batch.Batch, f func(offset uint64, value []byte)) {
	t.Helper()
	it := b.Records()
	for {
		var rec batch.Record
		ok, err := it.Next(&rec)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		f(it.Offset(), rec.Value)
	}
}
