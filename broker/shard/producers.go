// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// stored is one batch of a producer that the log holds.
type stored struct {
	sequence   uint64 // the producer's
	base       uint64 // below the ceiling once it is committed
	count      uint32
	appendTime int64
	generation uint64
}

// producer remembers its newest batches, pending ones too: a retry that overtakes its own commit must
// still find the original.
type producer struct {
	window []stored // ascending by sequence and by offset; never empty
}

func (p *producer) newest() *stored { return &p.window[len(p.window)-1] }

// producers is the table of a shard. Entries come only from batches that were appended, never from
// admission: a remembered id without a record would turn every retry away (ID-03).
type producers struct {
	byID map[uint64]*producer
	max  int
}

func newProducers(limit int) producers { return producers{byID: map[uint64]*producer{}, max: limit} }

func (t *producers) len() int { return len(t.byID) }

// check answers whether the batch is a retry (its original), may be stored (nil, nil), or is refused.
func (t *producers) check(id, seq, previous uint64, lastAppend int64) (*stored, *code.Error) {
	p := t.byID[id]
	if p == nil {
		if previous != 0 {
			return nil, code.New(code.ProducerUnknown, "the shard does not know producer %x, which names sequence %d before this one", id, previous)
		}
		if len(t.byID) >= t.max && !t.evict(lastAppend) {
			return nil, code.New(code.ProducersFull, "the shard remembers %d producers, all of them active within %s", len(t.byID), ProducerIdle)
		}
		return nil, nil
	}
	last := p.newest().sequence
	if seq > last && previous == last {
		return nil, nil
	}
	if i, ok := slices.BinarySearchFunc(p.window, seq, func(s stored, want uint64) int { return cmpUint(s.sequence, want) }); ok {
		return &p.window[i], nil
	}
	err := code.New(code.OutOfOrder, "producer sequence %d after %d: the last stored is %d", seq, previous, last).
		With(code.DetailLastSequence, last)
	if seq < p.window[0].sequence {
		// Between two that are remembered it is not there (R5: fatal). Below all of them it may have left the window.
		return nil, err.WithClass(code.ClassUnknown)
	}
	return nil, err
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// end is the offset behind the newest batch of a producer, 0 when there is none.
func (t *producers) end(id uint64) uint64 {
	p := t.byID[id]
	if p == nil {
		return 0
	}
	return p.newest().base + uint64(p.newest().count)
}

// store remembers an appended batch. Only committed batches leave a full window: a pending one may have
// to be cut off again, and what it displaced would be missing.
func (t *producers) store(id uint64, s stored, ceiling uint64) {
	p := t.byID[id]
	if p == nil {
		p = &producer{}
		t.byID[id] = p
	}
	for len(p.window) >= ProducerWindow && p.window[0].base < ceiling {
		p.window = p.window[1:]
	}
	p.window = append(p.window, s)
}

// cut forgets the batches from offset on.
func (t *producers) cut(offset uint64) {
	for id, p := range t.byID {
		for len(p.window) > 0 && p.newest().base >= offset {
			p.window = p.window[:len(p.window)-1]
		}
		if len(p.window) == 0 {
			delete(t.byID, id)
		}
	}
}

// evict forgets producers that have been silent for longer than anybody retries, and says whether there
// is room now. An active one is never evicted: its next retry would be stored twice.
func (t *producers) evict(lastAppend int64) bool {
	for id, p := range t.byID {
		if lastAppend-p.newest().appendTime > ProducerIdle.Microseconds() {
			delete(t.byID, id)
		}
	}
	return len(t.byID) < t.max
}

// ProducerLast is the last batch of a producer that is committed: its sequence and where it is. A pending one is not
// told: its producer would leave out what a failed write takes back.
func (c *Core) ProducerLast(id uint64) (sequence, offset uint64, known bool) {
	p := c.producers.byID[id]
	if p == nil {
		return 0, 0, false
	}
	for _, s := range slices.Backward(p.window) {
		if s.base < c.ceiling {
			return s.sequence, s.base, true
		}
	}
	return 0, 0, false
}

// entries is the table as control entries, in a fixed order.
func (t *producers) entries() []batch.Producer {
	ids := make([]uint64, 0, len(t.byID))
	for id := range t.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	out := make([]batch.Producer, 0, len(ids))
	for _, id := range ids {
		w := t.byID[id].window
		w = w[max(0, len(w)-ProducerWindow):]
		e := batch.Producer{ID: id, LastSequence: w[len(w)-1].sequence, Generation: w[len(w)-1].generation, LastAppend: w[len(w)-1].appendTime}
		for _, s := range w {
			e.Window = append(e.Window, batch.Stored{
				Sequence: s.sequence, BaseOffset: s.base, Count: s.count, AppendTime: s.appendTime, Generation: s.generation,
			})
		}
		out = append(out, e)
	}
	return out
}

// load takes one entry of a checkpoint.
func (t *producers) load(e batch.Producer) {
	if len(e.Window) == 0 {
		return
	}
	p := &producer{}
	for _, s := range e.Window {
		p.window = append(p.window, stored{
			sequence: s.Sequence, base: s.BaseOffset, count: s.Count, appendTime: s.AppendTime, generation: s.Generation,
		})
	}
	t.byID[e.ID] = p
}
