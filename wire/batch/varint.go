// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// cursor reads fields front to back. The first fault sticks: later reads return zero, so a caller reads a whole
// structure and looks at err once. It never reads outside b and never allocates.
type cursor struct {
	b   []byte
	pos int
	err error
	at  int // where err was met
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err, c.at = err, c.pos
	}
}

func (c *cursor) left() int { return len(c.b) - c.pos }

func (c *cursor) u8() byte {
	if c.err != nil || c.pos >= len(c.b) {
		c.fail(ErrSize)
		return 0
	}
	v := c.b[c.pos]
	c.pos++
	return v
}

// bool reads a byte of a control entry that is 0 or 1.
func (c *cursor) bool() bool {
	v := c.u8()
	if v > 1 {
		c.pos--
		c.fail(ErrEntry)
	}
	return v == 1
}

// upTo reads a byte of a control entry that is at most last.
func (c *cursor) upTo(last byte) byte {
	v := c.u8()
	if v > last {
		c.pos--
		c.fail(ErrEntry)
		return 0
	}
	return v
}

// most reads a string of a control entry that has at most n bytes.
func (c *cursor) most(n int) string {
	start := c.pos
	p := c.bytes(c.length())
	if len(p) > n {
		c.pos = start
		c.fail(ErrEntry)
		return ""
	}
	return string(p)
}

// u32 reads a varint that must fit 32 bits.
func (c *cursor) u32() uint32 {
	start := c.pos
	v := c.uvarint()
	if v > math.MaxUint32 {
		c.pos = start
		c.fail(ErrVarint)
		return 0
	}
	return uint32(v)
}

func (c *cursor) u64() uint64 {
	p := c.bytes(8)
	if len(p) < 8 {
		return 0
	}
	return le.Uint64(p)
}

// uvarint reads a base-128 number in its shortest form: two encodings of one meaning would let a checksum or a
// comparison of bytes tell equal batches apart.
func (c *cursor) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	if c.pos < len(c.b) && c.b[c.pos] < 0x80 {
		c.pos++
		return uint64(c.b[c.pos-1])
	}
	return c.longUvarint()
}

func (c *cursor) longUvarint() uint64 {
	var v uint64
	for i, x := range c.b[c.pos:] {
		if i == binary.MaxVarintLen64-1 && x > 1 {
			c.fail(ErrVarint)
			return 0
		}
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			if x == 0 {
				c.fail(ErrVarint)
				return 0
			}
			c.pos += i + 1
			return v
		}
	}
	c.fail(ErrSize)
	return 0
}

func (c *cursor) varint() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// length reads a size that must not exceed what remains, so that nothing is allocated for bytes that are not
// there.
func (c *cursor) length() int {
	start := c.pos
	v := c.uvarint()
	if v > uint64(c.left()) {
		c.pos = start
		c.fail(ErrSize)
		return 0
	}
	return int(v)
}

func (c *cursor) bytes(n int) []byte {
	if c.err != nil || n > c.left() {
		c.fail(ErrSize)
		return nil
	}
	p := c.b[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return p
}

func (c *cursor) str() string { return string(c.bytes(c.length())) }

// end refuses bytes that nothing described.
func (c *cursor) end() {
	if c.left() != 0 {
		c.fail(ErrSize)
	}
}

func appendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

func appendVarint(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}

func appendString(dst []byte, s string) []byte {
	return append(appendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
