// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Coders keep tables of some hundred KiB, so they are shared by all builders and readers of the process. The
// pools hold nothing that one batch could pass on to another, and the collector empties them.
var (
	encoders = sync.Pool{New: func() any {
		// No checksum of its own: the batch's covers the compressed bytes. One window never exceeds a batch.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		// DecodeAll stops at the capacity of its target: the declared size bounds memory before anything is read.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBatch),
			zstd.WithDecoderMaxWindow(MaxBatch), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil
		}
		return d
	}}
)

// compress appends the compressed form of src to dst; ok is false when there is no encoder.
func compress(dst, src []byte) (out []byte, ok bool) {
	e, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		return dst, false
	}
	defer encoders.Put(e)
	return e.EncodeAll(src, dst), true
}

// decompress returns a fresh buffer of exactly size bytes.
func decompress(src []byte, size int) ([]byte, error) {
	d, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		return nil, ErrCompression
	}
	defer decoders.Put(d)
	out, err := d.DecodeAll(src, make([]byte, 0, size))
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, ErrCompression
	}
	return out[:size:size], nil
}
