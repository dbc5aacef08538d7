// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tidwall/btree"
)

// Snapshot is the index as it was at one moment, whatever is written to the index since. Taking it copies nothing; until
// it is closed, keys that change are copied one by one, so it wants to be short-lived.
type Snapshot struct {
	x        *Index
	ordered  *btree.BTreeG[*item]
	sequence uint64
	offset   uint64
	closed   bool
}

// Snapshot returns the index as it is now. Its user closes it, and uses it from one goroutine at a time.
func (x *Index) Snapshot() *Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shared++
	return &Snapshot{x: x, ordered: x.ordered.Copy(), sequence: x.sequence, offset: x.offset}
}

// Close lets the index change its entries in place again. Closing twice is harmless.
func (s *Snapshot) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.ordered = nil // what it alone holds goes now, not when its user does
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	s.x.shared--
}

// AsOf is that of the index at the moment, both exclusive: what the Meta of the snapshot must say.
func (s *Snapshot) AsOf() (sequence, offset uint64) { return s.sequence, s.offset }

// Encode writes the snapshot in the format of docs/formats/keyindex.md.
func (s *Snapshot) Encode(w io.Writer, m Meta) error {
	switch {
	case s.closed:
		return fmt.Errorf("encode key index: %w", ErrClosed)
	case m.Sequence != s.sequence || m.Offset != s.offset:
		return fmt.Errorf("encode key index: mark at sequence %d, offset %d, snapshot at %d, %d: %w",
			m.Sequence, m.Offset, s.sequence, s.offset, ErrMark)
	}
	e := encoder{w: w}
	e.header(m, s.ordered.Len())
	s.ordered.Scan(func(it *item) bool {
		if it.Offset >= m.Offset || it.Sequence >= m.Sequence { // set by hand, and AsOf was not
			e.err = fmt.Errorf("key %q at sequence %d, offset %d: %w", it.key, it.Sequence, it.Offset, ErrMark)
		}
		e.entry(it)
		return e.err == nil
	})
	e.flush()
	if e.err != nil {
		return fmt.Errorf("encode key index: %w", e.err)
	}
	return nil
}

// encoder writes block by block. The checksum runs on from the header to the last block, so that each block is held to
// its place in its own file.
type encoder struct {
	w     io.Writer
	err   error
	sum   uint32
	block []byte // of the block under way, room for its head in front
	count uint32
	last  string // key before
}

const blockHead = 8

func (e *encoder) header(m Meta, count int) {
	b := make([]byte, 0, HeaderSize)
	b = append(b, magic...)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, 0) // flags
	b = le.AppendUint32(b, m.Shard)
	b = append(b, m.Log[:]...)
	for _, v := range []uint64{m.Generation, m.Sequence, m.Offset, uint64(count)} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, 0) // reserved
	e.write(b)
	e.block = make([]byte, blockHead, blockHead+blockTarget+1<<10)
}

func (e *encoder) entry(it *item) {
	var flags byte
	if it.Carried {
		flags |= flagCarried
	}
	if it.Until != 0 {
		flags |= flagExpires
	}
	shared := 0
	if e.count > 0 {
		shared = common(e.last, it.key)
	}
	b := append(e.block, flags)
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(it.key)-shared))
	b = append(b, it.key[shared:]...)
	b = binary.AppendUvarint(b, it.Offset)
	b = binary.AppendUvarint(b, it.Sequence)
	b = binary.AppendUvarint(b, uint64(it.Size))
	if it.Until != 0 {
		b = binary.AppendUvarint(b, uint64(it.Until))
	}
	e.block, e.last = b, it.key
	e.count++
	if len(b)-blockHead >= blockTarget {
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.count == 0 || e.err != nil {
		return
	}
	le.PutUint32(e.block, uint32(len(e.block)-blockHead))
	le.PutUint32(e.block[4:], e.count)
	e.write(e.block)
	e.block, e.count = e.block[:blockHead], 0
}

// write writes b and the checksum of all that was written, checksums apart: with them it would be the same behind each.
func (e *encoder) write(b []byte) {
	e.sum = crc32.Update(e.sum, castagnoli, b)
	if e.err == nil {
		_, e.err = e.w.Write(le.AppendUint32(b, e.sum))
	}
}

func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
