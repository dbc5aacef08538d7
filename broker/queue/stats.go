// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync/atomic"

	"margay.dev/wire"
)

// Stats are counted over all lanes.
type Stats struct {
	Lanes      atomic.Int64
	Messages   atomic.Uint64 // written
	Frames     atomic.Uint64 // that they were written in
	Bytes      atomic.Uint64 // of them
	Unreadable atomic.Uint64 // that could not be read and were given back or rejected
	Asked      [wire.SettleRelease + 1]atomic.Uint64
	Refused    atomic.Uint64 // messages whose claim had ended when they were to be settled
}

func (s *Stats) wrote(messages, bytes int) {
	s.Messages.Add(uint64(messages))
	s.Frames.Add(1)
	s.Bytes.Add(uint64(bytes))
}
