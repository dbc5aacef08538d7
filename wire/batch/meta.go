// SPDX-License-Identifier: Apache-2.0

package batch

import "time"

// Meta is what can be read of a record without its body: filters, key index, TTL and delay need no more.
type Meta struct {
	Key         []byte // aliases the batch; nil = none
	Null        bool   // tombstone
	Timestamp   int64
	Delay       time.Duration
	TTL         time.Duration
	Priority    uint8
	ValueSize   int
	HeadersSize int // as encoded, 0 = none
}

// Metas walks the metas of a batch; it never decompresses.
type Metas struct {
	c     cursor
	first int64
	left  int
	index int
	base  uint64
	plain int // bytes of the body not yet spoken for
	start int // where the section begins, for the position of a fault
	span  int // of a slice: records of its source, of which each meta says which it is; 0 = a batch, holding all

	generation uint64
	time       int64
	expired    bool
	origin     *origins // of a carried batch
}

// origins are where the records of a carried batch were first.
type origins struct {
	offset uint64 // of the record that was read last; its generation and append time take the place of the batch's
	// The batch's next offset and its generation. An origin beyond them would win over all that is written to its key from
	// now on.
	end, newest uint64
}

// Metas returns a walk over the metas of all records; a control batch has none.
func (b Batch) Metas() *Metas {
	m := &Metas{}
	m.reset(b)
	return m
}

func (m *Metas) reset(b Batch) {
	if len(b) == 0 { // a reader at rest holds on to nothing
		*m = Metas{index: -1}
		return
	}
	*m = Metas{
		first: b.FirstTimestamp(), base: b.BaseOffset(), plain: b.PlainSize(), index: -1, start: HeaderSize,
		generation: b.Generation(), time: b.AppendTime(), expired: b.IsExpired(),
	}
	if b.IsControl() {
		return
	}
	if b.IsCarried() {
		m.origin, m.time = b.origins(), 0
	}
	m.left = b.Count()
	m.c = cursor{b: b.meta()}
	if b.HasSettlement() {
		settlementSection(&m.c)
	}
}

// Next fills meta with the next record's. It returns false at the end.
func (m *Metas) Next(meta *Meta) (bool, error) {
	if m.left == 0 {
		m.finish()
	} else {
		m.step(meta)
	}
	if m.c.err != nil {
		return false, fault("read record meta", m.start+m.c.at, m.c.err)
	}
	return m.index >= 0, nil
}

// Offset is that of the record that Next returned last; of a carried one, that which it was first given.
func (m *Metas) Offset() uint64 {
	if m.origin != nil {
		return m.origin.offset
	}
	return m.base + uint64(m.index)
}

// Generation is that of the leader that first appended the record that Next returned last.
func (m *Metas) Generation() uint64 { return m.generation }

// AppendTime is when the record that Next returned last was first appended, in Unix microseconds: its delay and time to
// live count from it.
func (m *Metas) AppendTime() int64 { return m.time }

func (m *Metas) finish() {
	m.index = -1
	m.c.end()
	if m.plain != 0 {
		m.c.fail(ErrSize)
	}
	m.plain = 0
}

func (m *Metas) step(meta *Meta) {
	m.left--
	if m.span == 0 {
		m.index++
	} else {
		m.place()
	}
	if m.origin != nil {
		m.from()
	}
	c := &m.c
	start := c.pos
	flags := c.u8()
	if flags&^knownFlags != 0 || m.expired && flags != flagKey|flagNull {
		c.pos = start
		c.fail(ErrAttributes)
		return
	}
	*meta = Meta{Null: flags&flagNull != 0}
	meta.Timestamp = m.timestamp(c.varint())
	if flags&flagKey != 0 {
		meta.Key = c.bytes(c.length())
	}
	var delay, ttl uint64
	if flags&flagDelay != 0 {
		delay = c.schedule()
	}
	if flags&flagTTL != 0 {
		ttl = c.schedule()
		if ttl <= delay {
			c.fail(ErrSchedule)
		}
	}
	meta.Delay, meta.TTL = time.Duration(delay)*time.Microsecond, time.Duration(ttl)*time.Microsecond
	if flags&flagPriority != 0 {
		meta.Priority = c.priority()
	}
	if flags&flagNull == 0 {
		meta.ValueSize = m.take(0)
	}
	if flags&flagHeaders != 0 {
		meta.HeadersSize = m.take(1)
	}
}

// place reads which record of its source the next one of a slice is.
func (m *Metas) place() {
	start := m.c.pos
	at := m.c.uvarint()
	if at >= uint64(m.span) || int(at) <= m.index {
		m.c.pos = start
		m.c.fail(ErrSlice)
		return
	}
	m.index = int(at)
}

func (m *Metas) timestamp(delta int64) int64 {
	ts := m.first + delta
	if (delta > 0) != (ts > m.first) && delta != 0 || m.index == 0 && delta != 0 {
		m.c.fail(ErrTimestamp)
	}
	return ts
}

// take reads a size within the body and takes it off what the body still has.
func (m *Metas) take(least uint64) int {
	start := m.c.pos
	v := m.c.uvarint()
	if v < least || v > uint64(m.plain) {
		m.c.pos = start
		m.c.fail(ErrSize)
		return 0
	}
	m.plain -= int(v)
	return int(v)
}

func (c *cursor) priority() uint8 {
	v := c.u8()
	if c.err == nil && (v == 0 || v > MaxPriority) {
		c.pos--
		c.fail(ErrPriority)
		return 0
	}
	return v
}

func (c *cursor) schedule() uint64 {
	start := c.pos
	us := c.uvarint()
	if us == 0 || us > maxScheduleUs {
		c.pos = start
		c.fail(ErrSchedule)
		return 0
	}
	return us
}
