// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// What is wrong with a body that does not parse.
var (
	ErrShort    = errors.New("ends before its last field")
	ErrTrailing = errors.New("goes on behind its last field")
	ErrVarint   = errors.New("length is not a minimal varint")
	ErrValue    = errors.New("value is not defined")
)

// ParseError says where a body stops making sense. The frame's bounds are known, so the lane lives on:
// errors.As finds a *code.Error with code BadRequest in it, ready to be the answer.
type ParseError struct {
	Type Type
	// Pos is the position in the body, in bytes.
	Pos int
	Err error
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("parse %s at byte %d: %v", e.Type, e.Pos, e.Err)
}

// Unwrap gives both the sentinel and the answer for the wire.
func (e *ParseError) Unwrap() []error {
	return []error{e.Err, code.New(code.BadRequest, "%s", e.Error())}
}

// cursor walks a body. After the first error it returns zeros, so that a parser can read all its
// fields and ask once.
type cursor struct {
	body []byte
	pos  int
	typ  Type
	err  error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = &ParseError{Type: c.typ, Pos: c.pos, Err: err}
	}
}

// left is the number of bytes behind the position: what every length is checked against.
func (c *cursor) left() int { return len(c.body) - c.pos }

func (c *cursor) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.fail(ErrShort)
		return nil
	}
	b := c.body[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// enum reads a byte that must not exceed last: a value this build does not know would otherwise be
// silently taken for something else.
func (c *cursor) enum(last uint8) uint8 {
	v := c.u8()
	if v > last {
		c.pos--
		c.fail(ErrValue)
		return 0
	}
	return v
}

func (c *cursor) bool() bool { return c.enum(1) == 1 }

// uvarint reads a length. Only the shortest form is accepted: one meaning, one encoding.
func (c *cursor) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.body[c.pos:])
	switch {
	case n == 0:
		c.fail(ErrShort)
		return 0
	case n < 0 || n != uvarintSize(v):
		c.fail(ErrVarint)
		return 0
	}
	c.pos += n
	return v
}

func (c *cursor) string() string { return string(c.blob()) }

// blob reads a string without copying it: nil only after an error.
func (c *cursor) blob() []byte {
	n := c.uvarint()
	if c.err == nil && n > uint64(c.left()) {
		c.fail(ErrShort)
	}
	if c.err != nil {
		return nil
	}
	return c.take(int(n))
}

// u32v reads a varint that must fit 32 bits.
func (c *cursor) u32v() uint32 {
	at, v := c.pos, c.uvarint()
	if v > math.MaxUint32 {
		c.pos = at
		c.fail(ErrValue)
		return 0
	}
	return uint32(v)
}

// within refuses a number out of these bounds.
func (c *cursor) within(v, least, most uint64) uint64 {
	if c.err == nil && (v < least || v > most) {
		c.fail(ErrValue)
		return 0
	}
	return v
}

// text reads a string of at most n bytes.
func (c *cursor) text(n int) string {
	p := c.blob()
	if len(p) > n {
		c.fail(ErrValue)
		return ""
	}
	return string(p)
}

// nameOrNone reads a string that follows NameRule or is empty.
func (c *cursor) nameOrNone() string {
	s := c.string()
	if c.err == nil && s != "" && !ValidName(s) {
		c.fail(ErrValue)
	}
	return s
}

// varint reads a signed number in zigzag form.
func (c *cursor) varint() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// unsigned63 reads a number that is kept signed and is never negative.
func (c *cursor) unsigned63() int64 {
	at, v := c.pos, c.uvarint()
	if v > math.MaxInt64 {
		c.pos = at
		c.fail(ErrValue)
		return 0
	}
	return int64(v)
}

func (c *cursor) logID() (id batch.LogID) {
	copy(id[:], c.take(len(id)))
	return id
}

// id reads a random id, which is never 0: 0 stands for none.
func (c *cursor) id() uint64 {
	v := c.u64()
	if v == 0 {
		c.fail(ErrValue)
	}
	return v
}

// count reads a u32 number of entries of at least size bytes each, and refuses one that the rest of
// the body cannot hold, before anything is allocated for it.
func (c *cursor) count(size int) int {
	n := c.u32()
	if uint64(n)*uint64(size) > uint64(c.left()) {
		c.fail(ErrShort)
		return 0
	}
	return int(n)
}

// rest takes everything to the end of the body, which must be something.
func (c *cursor) rest() []byte {
	if c.left() == 0 {
		c.fail(ErrShort)
	}
	return c.take(c.left())
}

// done returns the first error, or ErrTrailing when bytes are left over.
func (c *cursor) done() error {
	if c.left() > 0 {
		c.fail(ErrTrailing)
	}
	return c.err
}

func uvarintSize(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

func varintSize(v int64) int { return uvarintSize(zigzag(v)) }

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

func blobSize(p []byte) int { return uvarintSize(uint64(len(p))) + len(p) }

func appendBlob(dst, p []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(p))), p...)
}

func stringSize(s string) int { return uvarintSize(uint64(len(s))) + len(s) }

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
