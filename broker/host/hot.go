// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"sync/atomic"

	"margay.dev/wire/batch"
)

const (
	hotSlots = 2048
	hotBatch = 17 << 10 // the largest batch that is kept: all of them take 34 MiB at most
)

// hotBatches keeps batches that are read again and again by key, checked as they were when they were read: what many ask
// for costs no system call each time. A batch that is committed never changes, so nothing has to be taken back. It is
// without locks, and a place that two batches fall on is the last one's.
type hotBatches struct{ slots [hotSlots]hotSlot }

type hotSlot struct {
	kept   atomic.Pointer[hot]
	missed atomic.Uint64 // the batch that was last read into nowhere; only one that is read twice is kept
}

type hot struct {
	opening, sequence uint64
	batch             batch.Batch
}

// slot spreads batches of all shards; an opening is of one shard.
func (h *hotBatches) slot(opening, sequence uint64) (*hotSlot, uint64) {
	x := (opening<<40 ^ sequence) * 0x9e3779b97f4a7c15
	return &h.slots[x>>53], x | 1
}

// get returns a batch that is kept, nil when it is not.
func (h *hotBatches) get(opening, sequence uint64) batch.Batch {
	slot, _ := h.slot(opening, sequence)
	if k := slot.kept.Load(); k != nil && k.opening == opening && k.sequence == sequence {
		return k.batch
	}
	return nil
}

// read is told of a batch that was read from the log.
func (h *hotBatches) read(opening, sequence uint64, b batch.Batch) {
	if len(b) > hotBatch {
		return
	}
	slot, x := h.slot(opening, sequence)
	if slot.missed.Swap(x) == x {
		slot.kept.Store(&hot{opening, sequence, bytes.Clone(b)})
	}
}
