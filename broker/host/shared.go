// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"container/list"
	"sync"

	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	sharedBytes = 32 << 20 // that shared batches of all shards take, with what cutting them takes
	readAhead   = 64 << 10 // of the log that is read at once for who goes through it
	placeBytes  = 8        // of a slicer, for each record
)

// Shared is a committed batch that is read once for all who hand out its records, one by one or some at a time.
type Shared struct {
	batch.Batch
	once   sync.Once
	slicer *batch.Slicer
	err    error
}

// AppendOffsets appends to dst a slice of the records that have these offsets, rising. The batch is gone through by the first
// who asks.
func (x *Shared) AppendOffsets(dst []byte, offsets []uint64) ([]byte, error) {
	x.once.Do(func() { x.slicer, x.err = batch.NewSlicer(x.Batch) })
	if x.err != nil {
		return nil, x.err
	}
	return x.slicer.AppendOffsets(dst, offsets)
}

// holds is what the batch may come to take: a compressed one is unpacked by the first slice.
func (x *Shared) holds() int {
	n := len(x.Batch) + placeBytes*x.Count()
	if x.Compressed() {
		n += x.PlainSize()
	}
	return n
}

// shared keeps the batches that were last asked for. What is committed never changes, so nothing has to be taken back; what
// an opening has had is not asked for by the next, which has another number.
type shared struct {
	mu    sync.Mutex
	at    map[sharedKey]*list.Element
	order list.List // of *sharedEntry, the newest first
	bytes int
}

type sharedKey struct{ opening, sequence uint64 }

type sharedEntry struct {
	key   sharedKey
	batch *Shared
	holds int
}

func (c *shared) get(key sharedKey) *Shared {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*sharedEntry).batch
}

// put keeps a batch, unless somebody else has been faster: then it is that one's.
func (c *shared) put(key sharedKey, b batch.Batch) *Shared {
	x := &Shared{Batch: b}
	n := x.holds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[key]; e != nil {
		return e.Value.(*sharedEntry).batch
	}
	if n > sharedBytes/4 {
		return x // it would throw out what many others are about to ask for
	}
	if c.at == nil {
		c.at = map[sharedKey]*list.Element{}
	}
	c.at[key] = c.order.PushFront(&sharedEntry{key, x, n})
	for c.bytes += n; c.bytes > sharedBytes; {
		e := c.order.Back()
		c.order.Remove(e)
		old := e.Value.(*sharedEntry)
		delete(c.at, old.key)
		c.bytes -= old.holds
	}
	return x
}

// SharedBatch returns the batch of this sequence, which the caller knows to be committed. It is everybody's: nobody changes
// it. What the log no longer holds is storage.ErrDropped. Who goes through the log finds the next batches read already.
func (s *Shard) SharedBatch(seq uint64) (*Shared, error) {
	c := &s.host.shared
	if x := c.get(sharedKey{s.opening, seq}); x != nil {
		return x, nil
	}
	ahead := s.ahead.Load() == seq
	if !ahead {
		b, err := s.Batch(nil, seq)
		if err != nil {
			return nil, err
		}
		s.ahead.Store(seq + 1)
		return c.put(sharedKey{s.opening, seq}, snug(b)), nil
	}
	l := s.log.Load()
	if l == nil {
		return nil, storage.ErrDropped
	}
	chunk, err := l.ReadTo(nil, seq, max(seq+1, s.hub.Sequence()), readAhead)
	if err != nil {
		return nil, dropped(err)
	}
	if len(chunk) == 0 {
		return nil, storage.ErrDropped
	}
	return s.keepAhead(seq, snug(chunk)), nil
}

// keepAhead keeps the batches of a chunk, and returns the first.
func (s *Shard) keepAhead(seq uint64, chunk []byte) (first *Shared) {
	for len(chunk) > 0 {
		b := batch.Batch(chunk)
		b = b[:b.Size():b.Size()]
		x := s.host.shared.put(sharedKey{s.opening, seq}, b)
		if first == nil {
			first = x
		}
		chunk, seq = chunk[len(b):], seq+1
	}
	s.ahead.Store(seq)
	return first
}

// shareCommitted keeps what was just committed, when consumers are being handed something: it most likely is that, and they
// need not read it.
func (s *Shard) shareCommitted() {
	for i := range s.eff.Committed {
		if b := s.eff.Committed[i].Batch; b.HasOffsets() {
			s.host.shared.put(sharedKey{s.opening, b.Sequence()}, b)
		}
	}
}

// KeptBatch is SharedBatch of one that need not be read; nil of another.
func (s *Shard) KeptBatch(seq uint64) *Shared { return s.host.shared.get(sharedKey{s.opening, seq}) }

// snug is the same bytes without the room behind them, of which a small batch in a large buffer would hold much.
func snug[B ~[]byte](b B) B {
	if cap(b)-len(b) > len(b)/4 {
		return bytes.Clone(b)
	}
	return b
}

// OnEnd calls f once when the shard is closed, at once if it is; f must not wait. Forget need not be called.
func (s *Shard) OnEnd(f func(why *code.Error)) (forget func()) {
	return s.hub.OnEnd(func(err error) { f(code.From(err)) })
}
