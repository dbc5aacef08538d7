// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"bytes"
	"math"
	"time"
)

// MaxLast is how large the batch of a Last may be: each stands in every checkpoint of its shard for as long as its
// session lives.
const MaxLast = 64 << 10

// Last is the record that is published for a session when it ends other than by close. The newest entry of an id holds.
type Last struct {
	ID      uint64        // the session's, random, and the producer of the batch
	Grace   time.Duration // whole milliseconds: how long the session may be silent after a restart of the broker
	Removed bool          // published, or taken back by the session
	Batch   Batch         // of one record, as a producer sends it; nil exactly when Removed
}

// Type returns TypeLast.
func (Last) Type() EntryType { return TypeLast }

// AppendTo appends the entry's bytes.
func (e Last) AppendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, e.ID)
	dst = appendUvarint(dst, uint64(graceMs(e.Grace)))
	dst = appendBool(dst, e.Removed)
	return append(dst, e.Batch...)
}

// graceMs keeps what is written readable: a log that holds an entry out of range could never be opened again.
func graceMs(d time.Duration) uint32 {
	return uint32(min(max(d, 0)/time.Millisecond, math.MaxUint32))
}

// parseLast copies the record of a last message; nobody has checked it.
func parseLast(c *cursor) Last {
	e := Last{ID: c.u64(), Grace: time.Duration(c.u32()) * time.Millisecond, Removed: c.bool()}
	if e.Removed != (c.left() == 0) {
		c.fail(ErrEntry)
	}
	if n := c.left(); n > 0 {
		e.Batch = bytes.Clone(c.bytes(n))
	}
	return e
}
