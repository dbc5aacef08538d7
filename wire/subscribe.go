// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// StartKind says where a subscription starts.
type StartKind uint8

// The kinds of start.
const (
	StartLatest   StartKind = 0
	StartEarliest StartKind = 1
	StartOffset   StartKind = 2
	StartTime     StartKind = 3
)

// Start is where to start in one shard.
type Start struct {
	Shard uint32
	Kind  StartKind
	// At is the offset (StartOffset) or the Unix microseconds (StartTime); otherwise 0.
	At uint64
	// Generation of the record before the offset, for the broker to see whether the log was cut there
	// since; 0 when not known.
	Generation uint64
}

// Policy says what happens when a subscriber's queue is full.
type Policy uint8

// The policies.
const (
	PolicyDefault    Policy = 0
	PolicyDropNew    Policy = 1
	PolicyDropOld    Policy = 2
	PolicyCatchUp    Policy = 3
	PolicyDisconnect Policy = 4
)

// Subscribe asks for the records of some shards. Answered by Subscribed, then Deliver, Gap and
// Progress, and at last End; or by Error instead of Subscribed. A lane carries one subscription.
type Subscribe struct {
	Log    batch.LogID
	Shards []Start
	Policy Policy
	// QueueRecords and QueueBytes bound the queue at the broker; 0 for its default.
	QueueRecords, QueueBytes uint32
	// UntilMark ends the subscription at the mark that was seen at its start.
	UntilMark bool
}

const startSize = 4 + 1 + 8 + 8

// Type returns TypeSubscribe.
func (*Subscribe) Type() Type { return TypeSubscribe }

// Size returns the size of the body.
func (f *Subscribe) Size() int { return 16 + 4 + startSize*len(f.Shards) + 1 + 4 + 4 + 1 }

// Append appends the body.
func (f *Subscribe) Append(dst []byte) []byte {
	dst = append(dst, f.Log[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for i := range f.Shards {
		s := &f.Shards[i]
		dst = binary.LittleEndian.AppendUint32(dst, s.Shard)
		dst = append(dst, byte(s.Kind))
		dst = binary.LittleEndian.AppendUint64(dst, s.At)
		dst = binary.LittleEndian.AppendUint64(dst, s.Generation)
	}
	dst = append(dst, byte(f.Policy))
	dst = binary.LittleEndian.AppendUint32(dst, f.QueueRecords)
	dst = binary.LittleEndian.AppendUint32(dst, f.QueueBytes)
	return appendBool(dst, f.UntilMark)
}

// Parse reads the body. A subscription to no shard makes no sense and is refused.
func (f *Subscribe) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeSubscribe}
	f.Log = c.logID()
	f.Shards = f.Shards[:0]
	n := c.count(startSize)
	if n == 0 {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		s := Start{Shard: c.u32(), Kind: StartKind(c.enum(uint8(StartTime))), At: c.u64(), Generation: c.u64()}
		if s.Kind < StartOffset && s.At != 0 {
			c.fail(ErrValue)
		}
		f.Shards = append(f.Shards, s)
	}
	f.Policy = Policy(c.enum(uint8(PolicyDisconnect)))
	f.QueueRecords = c.u32()
	f.QueueBytes = c.u32()
	f.UntilMark = c.bool()
	return c.done()
}
