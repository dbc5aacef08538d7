// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// The constants are those of wyhash: odd, and with as many ones as zeros.
const (
	seed = 0xa0761d6478bd642f
	mix  = 0xe7037ed1a0b428db
)

// summer makes a fingerprint. What pointers point to is numbered in the order in which it is met, so that what is shared
// counts as shared.
type summer struct {
	h    uint64
	seen map[place]uint64
}

func (s *summer) word(v uint64) {
	hi, lo := bits.Mul64(s.h^v, mix)
	s.h = hi ^ lo ^ seed
}

func (s *summer) bytes(b []byte) {
	s.word(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		s.word(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var rest [8]byte
		copy(rest[:], b)
		s.word(binary.LittleEndian.Uint64(rest[:]))
	}
}

// Mix adds a word to a fingerprint: systems put theirs together with it.
func Mix(h, v uint64) uint64 {
	s := summer{h: h}
	s.word(v)
	return s.h
}

// sumBytes takes a number of so many bytes.
func sumBytes(size uintptr) func(*summer, unsafe.Pointer) {
	switch size {
	case 8:
		return func(s *summer, p unsafe.Pointer) { s.word(*(*uint64)(p)) }
	case 1:
		return func(s *summer, p unsafe.Pointer) { s.word(uint64(*(*byte)(p))) }
	}
	return func(s *summer, p unsafe.Pointer) { s.bytes(unsafe.Slice((*byte)(p), size)) }
}
