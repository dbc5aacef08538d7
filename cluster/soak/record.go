// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"

	"margay.dev/cluster/history"
)

// A record says who published it and as its how manieth, and is filled from a block that everybody has: readers tell from
// it alone whether each of its bytes is right, without a memory of what was published.
const (
	headBytes = 12
	blockSize = 256 << 10
)

var (
	errShort = errors.New("it is shorter than its head")
	errBytes = errors.New("its bytes are not those that were published")
)

// block is what records are filled from.
func block() []byte {
	b := make([]byte, blockSize)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(b) // never fails
	return b
}

// fill returns the part of the block that a record of n bytes in all ends with.
func fill(block []byte, t history.Tag, n int) []byte {
	at := int((t.N*2654435761 + uint64(t.Producer)*97) % uint64(blockSize-n))
	return block[at : at+n-headBytes]
}

func makeValue(block []byte, t history.Tag, size int) []byte {
	v := make([]byte, 0, size)
	v = binary.LittleEndian.AppendUint32(v, t.Producer)
	v = binary.LittleEndian.AppendUint64(v, t.N)
	return append(v, fill(block, t, size)...)
}

// check says whose record a value is, and stands for its bytes.
func check(block, value []byte) (history.Tag, uint32, error) {
	if len(value) < headBytes || len(value) >= blockSize {
		return history.Tag{}, 0, errShort
	}
	t := history.Tag{Producer: binary.LittleEndian.Uint32(value), N: binary.LittleEndian.Uint64(value[4:])}
	if !bytes.Equal(value[headBytes:], fill(block, t, len(value))) {
		return t, 0, errBytes
	}
	return t, crc32.ChecksumIEEE(value[:headBytes]) ^ uint32(len(value)), nil
}
