// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Messages hands out records of one shard. Correlation id 0: a lane has one consumer.
type Messages struct {
	Shard      uint32
	Generation uint64
	Resets     uint32
	// HandOut is that of the first record; each further one has the next.
	HandOut uint64
	// Attempts has the records, counted from 0, of which this is not the first attempt; their indexes rise.
	Attempts []MessageAttempt
	// Slice says that Batch is a slice (batch.CheckSlice) of these records; otherwise it is a stored batch (batch.CheckStored), all
	// of whose records are handed out. Flag FlagSlice.
	Slice bool
	// Batch takes the rest of the body. Parse neither copies nor checks it.
	Batch []byte
}

// MessageAttempt says which attempt at a record this is, at least the second.
type MessageAttempt struct {
	Index   uint32
	Attempt uint32
}

const messageAttemptSize = 4 + 4

// Type returns TypeMessages.
func (*Messages) Type() Type { return TypeMessages }

// Flags says whether the records come as a slice.
func (f *Messages) Flags() uint8 {
	if f.Slice {
		return FlagSlice
	}
	return 0
}

// Head is the size of the body before the records.
func (f *Messages) Head() int { return 4 + 8 + 4 + 8 + 4 + messageAttemptSize*len(f.Attempts) }

// Size returns the size of the body.
func (f *Messages) Size() int { return f.Head() + len(f.Batch) }

// Append appends the body.
func (f *Messages) Append(dst []byte) []byte { return append(f.appendFields(dst), f.Batch...) }

// AppendHead appends the frame header and the body up to the records: for a writer that sends them from where they lie.
func (f *Messages) AppendHead(dst []byte) []byte {
	return f.appendFields(AppendHeader(dst, Header{Type: TypeMessages, Flags: f.Flags(), Size: uint32(f.Size())}))
}

func (f *Messages) appendFields(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint32(dst, f.Resets)
	dst = binary.LittleEndian.AppendUint64(dst, f.HandOut)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Attempts)))
	for _, a := range f.Attempts {
		dst = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(dst, a.Index), a.Attempt)
	}
	return dst
}

// Parse reads a body without flags; Batch aliases it.
func (f *Messages) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body; Batch aliases it.
func (f *Messages) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeMessages}
	c.flags(flags)
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.Resets = c.u32()
	f.HandOut = c.u64()
	f.Attempts = f.Attempts[:0]
	for n := c.count(messageAttemptSize); n > 0 && c.err == nil; n-- {
		a := MessageAttempt{Index: c.u32(), Attempt: c.u32()}
		if last := len(f.Attempts) - 1; a.Attempt < 2 || last >= 0 && a.Index <= f.Attempts[last].Index {
			c.fail(ErrValue)
		}
		f.Attempts = append(f.Attempts, a)
	}
	f.Slice = flags&FlagSlice != 0
	f.Batch = c.rest()
	return c.done()
}
