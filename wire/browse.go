// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Bounds of one Browse.
const (
	MaxBrowse      = 1000    // messages of an answer
	MaxBrowseBytes = 4 << 20 // bytes of an answer, unless one message alone takes more
)

// MessageState says how a message stands in a group. In a Browse it is a set of them.
type MessageState uint8

// The states.
const (
	MessageReady    MessageState = 1
	MessageDelayed  MessageState = 2
	MessageInFlight MessageState = 4
	MessageDead     MessageState = 8
	MessageRecord   MessageState = 16 // a record of the log, of no group: alone, and without one

	messageStates = 31
)

// Browse asks for messages of a shard without taking them. Answered by Browsed.
type Browse struct {
	Log   batch.LogID
	Shard uint32
	// Group is a name; empty exactly with MessageRecord.
	Group string
	// States are those that are asked for: at least one.
	States MessageState
	// HasAfter: begin behind the offset After; otherwise at the first.
	HasAfter bool
	After    uint64
	Limit    uint32 // 1 to MaxBrowse
	Filter   Filter // on the key; FilterAll for every message
	// Header and HeaderValue, when HasHeader: one that the message must have. Flag FlagHeader.
	HasHeader   bool
	Header      string
	HeaderValue []byte
}

// Type returns TypeBrowse.
func (*Browse) Type() Type { return TypeBrowse }

// Flags says whether a header is demanded.
func (f *Browse) Flags() uint8 {
	if f.HasHeader {
		return FlagHeader
	}
	return 0
}

// Size returns the size of the body.
func (f *Browse) Size() int {
	n := 16 + 4 + stringSize(f.Group) + 1 + 1 + 4 + filterSize(&f.Filter)
	if f.HasAfter {
		n += 8
	}
	if f.HasHeader {
		n += stringSize(f.Header) + blobSize(f.HeaderValue)
	}
	return n
}

// Append appends the body.
func (f *Browse) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = append(appendString(dst, f.Group), byte(f.States))
	if dst = appendBool(dst, f.HasAfter); f.HasAfter {
		dst = binary.LittleEndian.AppendUint64(dst, f.After)
	}
	dst = appendFilter(binary.LittleEndian.AppendUint32(dst, f.Limit), &f.Filter)
	if f.HasHeader {
		dst = appendBlob(appendString(dst, f.Header), f.HeaderValue)
	}
	return dst
}

// Parse reads a body without flags.
func (f *Browse) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body; HeaderValue aliases it.
func (f *Browse) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeBrowse}
	c.flags(flags)
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Group = c.nameOrNone()
	f.States = MessageState(c.enum(messageStates))
	if whole := f.States&MessageRecord != 0; f.States == 0 || whole != (f.Group == "") || whole && f.States != MessageRecord {
		c.fail(ErrValue)
	}
	f.After = 0
	if f.HasAfter = c.bool(); f.HasAfter {
		f.After = c.u64()
	}
	f.Limit = uint32(c.within(uint64(c.u32()), 1, MaxBrowse))
	f.Filter = c.keys()
	f.Header, f.HeaderValue = "", nil
	if f.HasHeader = flags&FlagHeader != 0; f.HasHeader {
		f.Header = c.text(batch.MaxHeaderBytes)
		if f.HeaderValue = c.blob(); len(f.HeaderValue) > batch.MaxHeaderBytes {
			c.fail(ErrValue)
		}
	}
	return c.done()
}

// BrowsedMessage is a message as it stands in a group, or a record of the log.
type BrowsedMessage struct {
	Offset   uint64
	State    MessageState // one of them
	Attempts uint32       // that have ended
	// Due and Expires in Unix microseconds: 0 for at once, and for never.
	Due, Expires int64
	// Consumer that has it, of MessageInFlight; at most MaxName bytes.
	Consumer string
	Reason   batch.DeadReason // of MessageDead; otherwise 0
	// Error is why the last attempt ended; at most batch.MaxGroupReason bytes.
	Error string
	// At is when it became what it is, in Unix microseconds: of MessageDead and MessageInFlight; otherwise 0.
	At         int64
	AppendTime int64
	Generation uint64
	Priority   uint8
	// Key and Value are nil when the record has none.
	Key, Value []byte
	// Headers is the header section of the record as its batch has it (batch.ParseHeaders reads it), empty when it has none.
	Headers []byte
}

// Parts of a browsed message that may be missing.
const (
	browsedKey   = 1
	browsedValue = 2
)

const minBrowsed = 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1

// Size is what the message takes in a frame, in bytes: for who keeps a frame below a bound.
func (m *BrowsedMessage) Size() int {
	n := uvarintSize(m.Offset) + 1 + uvarintSize(uint64(m.Attempts)) + varintSize(m.Due) + varintSize(m.Expires) + stringSize(m.Consumer) +
		1 + stringSize(m.Error) + varintSize(m.At) + varintSize(m.AppendTime) + uvarintSize(m.Generation) + 1 + 1 + blobSize(m.Headers)
	if m.Key != nil {
		n += blobSize(m.Key)
	}
	if m.Value != nil {
		n += blobSize(m.Value)
	}
	return n
}

func (m *BrowsedMessage) append(dst []byte) []byte {
	dst = append(binary.AppendUvarint(dst, m.Offset), byte(m.State))
	dst = binary.AppendUvarint(dst, uint64(m.Attempts))
	dst = binary.AppendUvarint(dst, zigzag(m.Due))
	dst = binary.AppendUvarint(dst, zigzag(m.Expires))
	dst = append(appendString(dst, m.Consumer), byte(m.Reason))
	dst = binary.AppendUvarint(appendString(dst, m.Error), zigzag(m.At))
	dst = binary.AppendUvarint(dst, zigzag(m.AppendTime))
	dst = append(binary.AppendUvarint(dst, m.Generation), m.Priority)
	var has byte
	if m.Key != nil {
		has |= browsedKey
	}
	if m.Value != nil {
		has |= browsedValue
	}
	dst = append(dst, has)
	if m.Key != nil {
		dst = appendBlob(dst, m.Key)
	}
	if m.Value != nil {
		dst = appendBlob(dst, m.Value)
	}
	return appendBlob(dst, m.Headers)
}

func (c *cursor) browsed() BrowsedMessage {
	m := BrowsedMessage{Offset: c.uvarint(), State: MessageState(c.enum(uint8(MessageRecord)))}
	if m.State == 0 || m.State&(m.State-1) != 0 {
		c.fail(ErrValue)
	}
	m.Attempts, m.Due, m.Expires, m.Consumer = c.u32v(), c.varint(), c.varint(), c.text(MaxName)
	m.Reason = batch.DeadReason(c.enum(uint8(batch.DeadExpired)))
	m.Error, m.At, m.AppendTime, m.Generation = c.text(batch.MaxGroupReason), c.varint(), c.varint(), c.uvarint()
	m.Priority = c.enum(batch.MaxPriority)
	has := c.enum(browsedKey | browsedValue)
	if has&browsedKey != 0 {
		m.Key = c.blob()
	}
	if has&browsedValue != 0 {
		m.Value = c.blob()
	}
	m.Headers = c.blob()
	return m
}

// Browsed answers Browse.
type Browsed struct {
	Shard      uint32
	Generation uint64
	// More: there may be others; go on behind the offset Next.
	More bool
	Next uint64
	// Messages are at most MaxBrowse, in the order of their offsets. Parse lets what they hold alias the body.
	Messages []BrowsedMessage
}

// Type returns TypeBrowsed.
func (*Browsed) Type() Type { return TypeBrowsed }

// Size returns the size of the body.
func (f *Browsed) Size() int {
	n := 4 + 8 + 1 + 8 + 4
	for i := range f.Messages {
		n += f.Messages[i].Size()
	}
	return n
}

// Append appends the body.
func (f *Browsed) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, f.Shard), f.Generation)
	dst = binary.LittleEndian.AppendUint64(appendBool(dst, f.More), f.Next)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Messages)))
	for i := range f.Messages {
		dst = f.Messages[i].append(dst)
	}
	return dst
}

// Parse reads the body.
func (f *Browsed) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeBrowsed}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.More = c.bool()
	f.Next = c.u64()
	f.Messages = f.Messages[:0]
	n := c.count(minBrowsed)
	if n > MaxBrowse {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Messages = append(f.Messages, c.browsed())
	}
	return c.done()
}
