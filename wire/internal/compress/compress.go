// SPDX-License-Identifier: Apache-2.0

// Package compress packs and unpacks the body of a batch with zstd: it owns the coders that all batches of a process
// share, and refuses to unpack more than the size that was declared.
package compress

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ErrSize means a body that does not unpack to the size that was declared.
var ErrSize = errors.New("body does not have the declared size")

var errNoCoder = errors.New("no zstd coder")

// Coders keep tables of some hundred KiB, so they are shared. The pools hold nothing that one body could pass on to
// another, and the collector empties them.
var (
	encoders = sync.Pool{New: func() any {
		// No checksum of its own: the batch's covers the packed bytes.
		return orNil(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true)))
	}}
	decoders = sync.Pool{New: func() any {
		// DecodeAll stops at the capacity of its target, so the declared size bounds memory.
		return orNil(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBody),
			zstd.WithDecoderMaxWindow(maxBody), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true)))
	}}
)

// maxBody is the absolute bound of a batch; a window or frame beyond it is refused before anything is allocated.
const maxBody = 8 << 20

func orNil[T any](coder *T, err error) any {
	if err != nil {
		return nil
	}
	return coder
}

// Zstd appends the packed form of src to dst; ok is false when there is no encoder.
func Zstd(dst, src []byte) (out []byte, ok bool) {
	e, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		return dst, false
	}
	defer encoders.Put(e)
	return e.EncodeAll(src, dst), true
}

// Unzstd returns src unpacked, in a fresh buffer of exactly size bytes.
func Unzstd(src []byte, size int) ([]byte, error) {
	d, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		return nil, errNoCoder
	}
	defer decoders.Put(d)
	out, err := d.DecodeAll(src, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("unpack %d bytes: %w", len(src), err)
	}
	if len(out) != size {
		return nil, fmt.Errorf("unpack %d bytes to %d, not %d: %w", len(src), len(out), size, ErrSize)
	}
	return out[:size:size], nil
}
