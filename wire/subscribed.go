// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Started is where a subscription begins in one shard.
type Started struct {
	Shard      uint32
	Generation uint64
	// Offset of the first record that will come, Latest the mark at that moment (exclusive).
	Offset, Latest uint64
	// Resumed: there was a cursor and the subscription begins where it stands. Epoch tells its holders apart. Both only
	// of a durable subscription.
	Resumed bool
	Epoch   uint64
}

// Subscribed answers Subscribe.
type Subscribed struct {
	Shards []Started
	// Durable: the shards say whether they were resumed. Flag FlagDurable.
	Durable bool
}

const (
	startedSize = 4 + 3*8
	durableSize = 1 + 8
)

// Type returns TypeSubscribed.
func (*Subscribed) Type() Type { return TypeSubscribed }

// Flags says whether the second list is there.
func (f *Subscribed) Flags() uint8 {
	if f.Durable {
		return FlagDurable
	}
	return 0
}

// Size returns the size of the body.
func (f *Subscribed) Size() int {
	n := startedSize
	if f.Durable {
		n += durableSize
	}
	return 4 + n*len(f.Shards)
}

// Append appends the body.
func (f *Subscribed) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for i := range f.Shards {
		s := &f.Shards[i]
		dst = binary.LittleEndian.AppendUint32(dst, s.Shard)
		dst = binary.LittleEndian.AppendUint64(dst, s.Generation)
		dst = binary.LittleEndian.AppendUint64(dst, s.Offset)
		dst = binary.LittleEndian.AppendUint64(dst, s.Latest)
	}
	for i := 0; f.Durable && i < len(f.Shards); i++ {
		dst = binary.LittleEndian.AppendUint64(appendBool(dst, f.Shards[i].Resumed), f.Shards[i].Epoch)
	}
	return dst
}

// Parse reads a body without flags.
func (f *Subscribed) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body.
func (f *Subscribed) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeSubscribed}
	c.flags(flags)
	f.Durable = flags&FlagDurable != 0
	f.Shards = f.Shards[:0]
	for n := c.count(startedSize); n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, Started{Shard: c.u32(), Generation: c.u64(), Offset: c.u64(), Latest: c.u64()})
	}
	for i := 0; f.Durable && i < len(f.Shards); i++ {
		f.Shards[i].Resumed, f.Shards[i].Epoch = c.bool(), c.u64()
	}
	return c.done()
}
