// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"sync"

	"margay.dev/broker/shard"
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// recordRead is what a record is read into; a larger batch takes memory of its own.
const recordRead = 64 << 10

var recordBuffers = sync.Pool{New: func() any { return new([recordRead]byte) }}

// ErrNoRecord means that a batch does not hold the record that was asked for.
var ErrNoRecord = errors.New("the record is not there")

// Record reads the record that an entry of the key index names, and shows it to see, which must keep nothing of it: the
// batch, and what is read of the record. storage.ErrDropped says that it was carried meanwhile: its key is to be looked up
// again.
func (s *Shard) Record(e keyindex.Entry, see func(b batch.Batch, r *batch.Record, records *batch.Reader) error) error {
	l := s.log.Load()
	if l == nil {
		return ErrNoRecord
	}
	buf := recordBuffers.Get().(*[recordRead]byte)
	defer recordBuffers.Put(buf)
	stored, err := l.ReadTo(buf[:], e.Sequence, e.Sequence+1, 1)
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		return ErrNoRecord
	}
	b := batch.Batch(stored)
	records := b.Records()
	for {
		var r batch.Record
		ok, err := records.Next(&r)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("offset %d in batch %d: %w", e.Offset, e.Sequence, ErrNoRecord)
		}
		if records.Offset() == e.Offset {
			return see(b, &r, records)
		}
	}
}

// readRecord is the core's view of the log.
func (s *Shard) readRecord(sequence, offset uint64) (out batch.Record, err error) {
	err = s.Record(keyindex.Entry{Sequence: sequence, Offset: offset}, func(_ batch.Batch, r *batch.Record, _ *batch.Reader) error {
		out = r.Clone()
		return nil
	})
	return out, err
}

// tellSums reads the sums of a publish that was stored before, from what was stored: who asks again is told the same. It
// is stored, whatever becomes of the answer; when the log has gone past it nobody knows the sums.
func (s *Shard) tellSums(r *Request, a *shard.Answer) {
	if a.Err != nil || !a.Ack.Duplicate || len(r.Publish.Derives) == 0 {
		return
	}
	sums, err := s.sumsAt(a.Ack.BaseOffset, r.Publish.Derives)
	if err != nil {
		a.Err = code.New(code.OutcomeUnknown, "it was stored at offset %d before, and what it came to cannot be read any more: %w", a.Ack.BaseOffset, err)
		return
	}
	a.Ack.Sums = sums
}

func (s *Shard) sumsAt(offset uint64, derives []shard.Derive) ([]int64, error) {
	seq, err := s.Find(offset)
	if err != nil {
		return nil, err
	}
	stored, err := s.Read(nil, seq, 1)
	if err != nil {
		return nil, err
	}
	if len(stored) == 0 || batch.Batch(stored).BaseOffset() != offset {
		return nil, ErrNoRecord
	}
	var all []batch.Record
	records := batch.Batch(stored).Records()
	for {
		var r batch.Record
		ok, err := records.Next(&r)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		all = append(all, r.Clone())
	}
	sums, ok := shard.SumsOf(all, derives)
	if !ok {
		return nil, ErrNoRecord
	}
	return sums, nil
}
