// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

var errNoRecord = errors.New("the record is not there")

// readRecord is the core's view of the log.
func (s *Shard) readRecord(sequence, offset uint64) (batch.Record, error) {
	b, err := s.Batch(nil, sequence)
	if err != nil {
		return batch.Record{}, err
	}
	return shard.FindRecord(b, offset)
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
		return nil, errNoRecord
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
		return nil, errNoRecord
	}
	return sums, nil
}
