// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"strconv"
)

// GapReason says why a subscriber does not get some records.
type GapReason uint8

// The reasons of a gap.
const (
	// GapDropped: the subscriber's queue was full and its policy is to drop.
	GapDropped GapReason = 1
	// GapRetention: they were removed by retention before they were read.
	GapRetention GapReason = 2
	// GapCut: the log was cut by a failover.
	GapCut GapReason = 3
	// GapAcceptedLoss: an operator accepted their loss in a repair.
	GapAcceptedLoss GapReason = 4
	// GapUnreadable: their producer compressed them in a way that nobody can undo.
	GapUnreadable GapReason = 5
)

// String returns the reason as metrics and logs write it.
func (r GapReason) String() string {
	switch r {
	case GapDropped:
		return "dropped"
	case GapRetention:
		return "retention"
	case GapCut:
		return "cut"
	case GapAcceptedLoss:
		return "accepted_loss"
	case GapUnreadable:
		return "unreadable"
	}
	return "reason_" + strconv.Itoa(int(r))
}

// Gap says that the records in [From, To) will not come. It stands before the delivery that follows it.
type Gap struct {
	Shard    uint32
	From, To uint64
	Reason   GapReason
}

// Type returns TypeGap.
func (*Gap) Type() Type { return TypeGap }

// Size returns the size of the body.
func (*Gap) Size() int { return 4 + 2*8 + 1 }

// Append appends the body.
func (f *Gap) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.From)
	dst = binary.LittleEndian.AppendUint64(dst, f.To)
	return append(dst, byte(f.Reason))
}

// Parse reads the body.
func (f *Gap) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGap}
	f.Shard = c.u32()
	f.From = c.u64()
	f.To = c.u64()
	f.Reason = GapReason(c.enum(uint8(GapUnreadable)))
	if f.From >= f.To || f.Reason == 0 {
		c.fail(ErrValue)
	}
	return c.done()
}
