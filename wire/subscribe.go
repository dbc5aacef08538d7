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
	// Filters let through the records that one of them matches; none lets through all. Flag FlagFilters.
	Filters []Filter
	// Durable is the name of a cursor that the broker keeps: where there is one, it and not Shards says where to start.
	// Empty for none. Flag FlagDurable.
	Durable string
}

const startSize = 4 + 1 + 8 + 8

// Type returns TypeSubscribe.
func (*Subscribe) Type() Type { return TypeSubscribe }

// Flags says which parts stand behind the fixed ones.
func (f *Subscribe) Flags() (flags uint8) {
	if len(f.Filters) > 0 {
		flags |= FlagFilters
	}
	if f.Durable != "" {
		flags |= FlagDurable
	}
	return flags
}

// Size returns the size of the body.
func (f *Subscribe) Size() int {
	n := 16 + 4 + startSize*len(f.Shards) + 1 + 4 + 4 + 1
	if len(f.Filters) > 0 {
		n += filtersSize(f.Filters)
	}
	if f.Durable != "" {
		n += stringSize(f.Durable)
	}
	return n
}

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
	dst = appendBool(dst, f.UntilMark)
	if len(f.Filters) > 0 {
		dst = appendFilters(dst, f.Filters)
	}
	if f.Durable != "" {
		dst = appendString(dst, f.Durable)
	}
	return dst
}

// Parse reads a body without flags.
func (f *Subscribe) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body. A subscription to no shard makes no sense and is refused.
func (f *Subscribe) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeSubscribe}
	c.flags(flags)
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
	f.Filters, f.Durable = f.Filters[:0], ""
	if flags&FlagFilters != 0 {
		f.Filters = c.filters(f.Filters)
	}
	if flags&FlagDurable != 0 {
		f.Durable = c.name()
	}
	return c.done()
}
