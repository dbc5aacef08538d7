// SPDX-License-Identifier: Apache-2.0

package storagetest

import (
	"fmt"

	"margay.dev/wire/batch"
)

// Writer plays the leader of a shard: it builds batches and assigns them so that they follow each other.
type Writer struct {
	Sequence   uint64
	Offset     uint64
	Generation uint64
	Time       int64  // append time of the next batch, Unix microseconds; each batch takes one
	Flushed    uint64 // what the next batches say was flushed
}

// NewWriter returns the writer of a new log.
func NewWriter() *Writer { return &Writer{Generation: 1, Time: 1_700_000_000_000_000} }

// Assign assigns a batch that was built elsewhere.
func (w *Writer) Assign(b batch.Batch) batch.Batch {
	b.Assign(batch.Assigned{
		Sequence: w.Sequence, BaseOffset: w.Offset, Generation: w.Generation, AppendTime: w.Time,
		Flushed: min(w.Flushed, w.Sequence),
	})
	w.Sequence, w.Offset, w.Time = w.Sequence+1, b.NextOffset(), w.Time+1
	return b
}

// Records returns a batch with a record for each value.
func (w *Writer) Records(values ...[]byte) batch.Batch {
	b := batch.NewBuilder(batch.Limits{})
	for _, v := range values {
		if err := b.Add(batch.Record{Value: v, Timestamp: w.Time}); err != nil {
			panic(fmt.Sprintf("build test batch: %v", err)) // a test that asks for more than a batch can hold
		}
	}
	out, err := b.Build(0, 0, batch.None)
	if err != nil {
		panic(fmt.Sprintf("build test batch: %v", err))
	}
	return w.Assign(out)
}

// Record returns a batch of one record that names its offset and has size bytes.
func (w *Writer) Record(size int) batch.Batch { return w.Records(Value(w.Offset, size)) }

// Value returns the value that Record gives the record at an offset: its number, then bytes that differ from offset to
// offset.
func Value(offset uint64, size int) []byte {
	v := fmt.Appendf(make([]byte, 0, size+24), "record %d ", offset)
	for i := uint64(0); len(v) < size; i++ {
		x := (offset*1_000_003 + i) * 0x9e3779b97f4a7c15
		v = append(v, byte(x>>56))
	}
	return v[:size]
}

// Control returns a control batch.
func (w *Writer) Control() batch.Batch {
	return w.Assign(batch.BuildControl(batch.LogStart{Sequence: w.Sequence, Offset: w.Offset}))
}

// Carried returns a batch of so many records of size bytes that take no offset here: they have those of older ones.
func (w *Writer) Carried(count, size int) batch.Batch {
	records := make([]batch.Carried, count)
	for i := range records {
		old := w.Offset * uint64(i) / uint64(count)
		records[i] = batch.Carried{
			Record: batch.Record{Key: fmt.Append(nil, old), Value: Value(old, size), Timestamp: w.Time}, Offset: old, AppendTime: w.Time - 1,
		}
	}
	b, err := batch.BuildCarried(records, batch.None)
	if err != nil {
		panic(fmt.Sprintf("build test batch: %v", err))
	}
	return w.Assign(b)
}

// Expired returns a batch of so many tombstones of keys whose time to live ended.
func (w *Writer) Expired(count int) batch.Batch {
	keys := make([][]byte, count)
	for i := range keys {
		keys[i] = fmt.Append(nil, i)
	}
	return w.Assign(batch.BuildExpired(keys, w.Time))
}

// Checkpoint returns a checkpoint in so many parts, each with filler for about size bytes.
func (w *Writer) Checkpoint(parts, size int) []batch.Batch {
	out := make([]batch.Batch, parts)
	for i := range out {
		filler := batch.Generations{Table: make([]batch.GenerationStart, size/3)}
		out[i] = w.Assign(batch.BuildControl(batch.CheckpointPart{Index: uint32(i), Total: uint32(parts)}, filler))
	}
	return out
}

// Back returns the writer to where it stood before b was assigned, as a leader whose append was refused does.
func (w *Writer) Back(b batch.Batch) { w.Sequence, w.Offset = b.Sequence(), b.BaseOffset() }
