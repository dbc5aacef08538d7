// SPDX-License-Identifier: Apache-2.0

package batch

// MaxWindow is how many of its latest batches are remembered of a producer.
const MaxWindow = 256

// Producer is what a shard remembers of one producer, so that a batch sent again is answered and not stored again.
type Producer struct {
	ID           uint64
	LastSequence uint64
	Generation   uint64
	LastAppend   int64    // Unix microseconds
	Window       []Stored // newest last, at most MaxWindow: of more, only the newest are written
}

// Stored is where one batch of a producer went.
type Stored struct {
	Sequence   uint64 // the producer's
	BaseOffset uint64
	Count      uint32
	AppendTime int64
	Generation uint64
}

// Type returns TypeProducer.
func (Producer) Type() EntryType { return TypeProducer }

// AppendTo appends the entry's bytes. Each window entry is coded as the difference to what one expects after the
// entry before it: next sequence, next offset, same generation. Differences wrap, so any values come back.
func (e Producer) AppendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, e.ID)
	dst = appendUvarint(dst, e.LastSequence)
	dst = appendUvarint(dst, e.Generation)
	dst = appendVarint(dst, e.LastAppend)
	window := e.Window[max(0, len(e.Window)-MaxWindow):]
	dst = appendUvarint(dst, uint64(len(window)))
	var want Stored
	for _, s := range window {
		dst = appendVarint(dst, int64(s.Sequence-want.Sequence))
		dst = appendVarint(dst, int64(s.BaseOffset-want.BaseOffset))
		dst = appendUvarint(dst, uint64(s.Count))
		dst = appendVarint(dst, int64(uint64(s.AppendTime)-uint64(want.AppendTime)))
		dst = appendVarint(dst, int64(s.Generation-want.Generation))
		want = s.next()
	}
	return dst
}

func (s Stored) next() Stored {
	s.Sequence++
	s.BaseOffset += uint64(s.Count)
	return s
}

func parseProducer(c *cursor) Producer {
	e := Producer{ID: c.u64(), LastSequence: c.uvarint(), Generation: c.uvarint(), LastAppend: c.varint()}
	n := c.length()
	if n > MaxWindow {
		c.fail(ErrEntry)
	}
	if n == 0 || c.err != nil {
		return e
	}
	e.Window = make([]Stored, 0, n)
	var want Stored
	for range n {
		s := Stored{
			Sequence:   want.Sequence + uint64(c.varint()),
			BaseOffset: want.BaseOffset + uint64(c.varint()),
			Count:      c.u32(),
			AppendTime: want.AppendTime + c.varint(),
			Generation: want.Generation + uint64(c.varint()),
		}
		if c.err != nil {
			return e
		}
		e.Window = append(e.Window, s)
		want = s.next()
	}
	return e
}
