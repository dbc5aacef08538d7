// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
)

// Read builds the index that Encode wrote. It believes no length: memory is taken for what has arrived, and an entry takes
// some twenty times its bytes at most. The index is as of the mark in Meta.
func Read(r io.Reader) (*Index, Meta, error) {
	d := decoder{r: r, x: New()}
	m, err := d.header()
	for err == nil && d.left > 0 {
		err = d.block()
	}
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return nil, Meta{}, fmt.Errorf("read key index: %w", err)
	}
	d.finish()
	return d.x, m, nil
}

type decoder struct {
	r    io.Reader
	x    *Index
	sum  uint32
	left uint64 // keys to come
	buf  []byte
	key  []byte
	last *item
	due  []dueAt
}

// dueAt has the time beside the item, so that sorting a million of them seldom looks at one.
type dueAt struct {
	until int64
	it    *item
}

// take reads n bytes and the checksum behind them. It grows as bytes arrive, so that a wrong n costs nothing.
func (d *decoder) take(dst []byte, n int) ([]byte, error) {
	for from := len(dst); len(dst) < from+n; {
		step := min(from+n-len(dst), blockTarget+1<<10)
		dst = slices.Grow(dst, step)
		at := len(dst)
		dst = dst[:at+step]
		if _, err := io.ReadFull(d.r, dst[at:]); err != nil {
			return nil, short(err)
		}
	}
	return dst, nil
}

func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrShort
	}
	return err
}

// check holds b to the checksum in its last four bytes.
func (d *decoder) check(b []byte) error {
	body := b[:len(b)-4]
	d.sum = crc32.Update(d.sum, castagnoli, body)
	if d.sum != le.Uint32(b[len(body):]) {
		return ErrChecksum
	}
	return nil
}

func (d *decoder) header() (Meta, error) {
	b, err := d.take(nil, HeaderSize)
	if err != nil {
		return Meta{}, err
	}
	if string(b[:len(magic)]) != magic {
		return Meta{}, ErrMagic
	}
	if err := d.check(b); err != nil {
		return Meta{}, err
	}
	if le.Uint16(b[8:]) != Version || le.Uint16(b[10:]) != 0 {
		return Meta{}, ErrNewer
	}
	if le.Uint32(b[64:]) != 0 {
		return Meta{}, ErrNewer // reserved, so of somebody who knows what it is for
	}
	m := Meta{
		Shard: le.Uint32(b[12:]), Generation: le.Uint64(b[32:]), Sequence: le.Uint64(b[40:]), Offset: le.Uint64(b[48:]),
	}
	copy(m.Log[:], b[16:32])
	d.left = le.Uint64(b[56:])
	d.x.sequence, d.x.offset = m.Sequence, m.Offset
	return m, nil
}

func (d *decoder) block() error {
	b, err := d.take(d.buf[:0], blockHead)
	if err != nil {
		return err
	}
	size, count := le.Uint32(b), le.Uint32(b[4:])
	if count == 0 || uint64(count) > d.left || size > maxBlock || uint64(size) < uint64(count)*minEntry {
		return ErrContent
	}
	if b, err = d.take(b, int(size)+4); err != nil {
		return err
	}
	d.buf = b
	if err := d.check(b); err != nil {
		return err
	}
	c := cursor{b: b[blockHead : len(b)-4]}
	d.key = d.key[:0]
	for range count {
		if err := d.entry(&c); err != nil {
			return err
		}
	}
	if len(c.b) != 0 {
		return ErrContent
	}
	d.left -= uint64(count)
	return nil
}

func (d *decoder) entry(c *cursor) error {
	flags := c.u8()
	if flags&^byte(knownFlags) != 0 {
		return ErrNewer
	}
	shared := c.uvarint(uint64(len(d.key)))
	rest := c.bytes(int(c.uvarint(uint64(len(c.b)))))
	e := Entry{
		Offset: c.uvarint(math.MaxUint64), Sequence: c.uvarint(math.MaxUint64),
		Size: uint32(c.uvarint(math.MaxUint32)), Carried: flags&flagCarried != 0,
	}
	if flags&flagExpires != 0 {
		e.Until = int64(c.uvarint(math.MaxInt64))
		c.bad = c.bad || e.Until == 0
	}
	if c.bad || e.Offset >= d.x.offset || e.Sequence >= d.x.sequence {
		return ErrContent
	}
	d.key = append(d.key[:shared], rest...)
	return d.add(string(d.key), e)
}

func (d *decoder) add(key string, e Entry) error {
	if d.last != nil && key <= d.last.key {
		return ErrContent
	}
	it := &item{key: key, Entry: e}
	d.last = it
	d.x.ordered.Load(it)
	d.x.items.add(it)
	d.x.count(it, 1)
	if e.Until != 0 {
		d.due = append(d.due, dueAt{e.Until, it})
	}
	return nil
}

func (d *decoder) end() error {
	n, err := io.ReadFull(d.r, make([]byte, 1))
	switch {
	case n > 0:
		return ErrContent
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// finish orders what expires at once: one by one would take as long as all the rest.
func (d *decoder) finish() {
	slices.SortFunc(d.due, func(a, b dueAt) int {
		if a.until != b.until {
			return cmp.Compare(a.until, b.until)
		}
		return strings.Compare(a.it.key, b.it.key)
	})
	for _, one := range d.due {
		d.x.due.Load(one.it)
	}
}

// cursor takes fields off the front of a block. What is not there, or out of bounds, makes it bad and reads as nothing.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) u8() byte {
	if p := c.bytes(1); len(p) == 1 {
		return p[0]
	}
	return 0
}

// uvarint refuses what is above most, and every form but the shortest, as a batch does.
func (c *cursor) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 1 && c.b[n-1] == 0 || v > most {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes(n int) []byte {
	if n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}
