// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

// readOne is what is read of the log at once for one batch: most are no larger, and a larger one is read again.
const readOne = 4 << 10

// Batch returns the batch of this sequence, which the caller knows to be committed and does not change. It may lie in buf.
// What the log no longer holds is storage.ErrDropped.
func (s *Shard) Batch(buf []byte, seq uint64) (batch.Batch, error) {
	if b := s.host.hot.get(s.opening, seq); b != nil {
		return b, nil
	}
	l := s.log.Load()
	if l == nil {
		return nil, storage.ErrDropped
	}
	b, err := l.ReadTo(buf, seq, seq+1, readOne)
	if err != nil {
		return nil, dropped(err)
	}
	if len(b) == 0 {
		return nil, storage.ErrDropped // a log in memory was opened anew
	}
	s.host.hot.read(s.opening, seq, b)
	return b, nil
}

// dropped makes a gap, which an operator has accepted, of what is no longer there: whoever asks for one batch need not tell
// the two apart.
func dropped(err error) error {
	if gap, ok := errors.AsType[*storage.GapError](err); ok {
		return errors.Join(storage.ErrDropped, gap)
	}
	return err
}

// KeepsNewest says whether the log keeps the newest record of each key: then nothing that a key's value lies in goes.
func (s *Shard) KeepsNewest() bool { return s.cfg.KeepNewest }
