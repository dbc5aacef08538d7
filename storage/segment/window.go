// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"margay.dev/wire/batch"
)

// Window reads a file forward through one buffer, which grows to the largest batch and never to a length that a damaged
// header claims beyond that (a caller checks sizes first; the file's own size bounds the rest).
type Window struct {
	r     io.ReaderAt
	size  int64
	chunk int
	buf   []byte
	from  int64 // position of buf[0]
}

// NewWindow reads the first size bytes of r, at least chunk of them at a time.
func NewWindow(r io.ReaderAt, size int64, chunk int) *Window {
	return &Window{r: r, size: size, chunk: chunk}
}

// Reuse has the window read into buf for as long as that is large enough.
func (w *Window) Reuse(buf []byte) { w.buf = buf[:0] }

// Bytes returns n bytes at pos, fewer at the end of the file. They are valid until the next call.
func (w *Window) Bytes(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(0, w.size-pos)))
	if pos >= w.from && pos+int64(n) <= w.from+int64(len(w.buf)) {
		return w.buf[pos-w.from:][:n], nil
	}
	want := int(min(int64(max(n, w.chunk)), w.size-pos))
	var have []byte // what the buffer holds from pos on is kept, so that no byte is read twice on the way forward
	if pos >= w.from && pos < w.from+int64(len(w.buf)) {
		have = w.buf[pos-w.from:]
	}
	buf := w.buf[:cap(w.buf)]
	if len(buf) < want {
		buf = make([]byte, want)
	}
	buf = buf[:want]
	kept := copy(buf, have)
	w.buf, w.from = buf, pos
	got, err := w.r.ReadAt(buf[kept:], pos+int64(kept))
	if got += kept; got < want {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		w.buf = w.buf[:0]
		return nil, fmt.Errorf("read %d bytes at %d: %w", want, pos, err)
	}
	return w.buf[:n], nil
}

// Zero reports whether there is nothing but zeros from pos to the end.
func (w *Window) Zero(pos int64) (bool, error) {
	for pos < w.size {
		if _, err := w.Bytes(pos, 1); err != nil {
			return false, err
		}
		b := w.buf[pos-w.from:] // all that is at hand
		if len(bytes.TrimLeft(b, "\x00")) > 0 {
			return false, nil
		}
		pos += int64(len(b))
	}
	return true, nil
}

// Head returns the header of the batch at pos, and its size, having checked everything that the header alone can tell:
// its own checksum covers the assigned part, and the size must fit the file. It is how a reader steps from batch to
// batch without reading them.
func (w *Window) Head(pos int64) (batch.Batch, int, error) {
	b, err := w.Bytes(pos, batch.HeaderSize)
	if err != nil {
		return nil, 0, err
	}
	n, err := batch.Peek(b)
	switch {
	case err != nil:
		return nil, 0, &FaultError{Position: pos, Err: err}
	case int64(n) > w.size-pos:
		return nil, 0, &FaultError{Position: pos, Err: fmt.Errorf("batch of %d bytes where %d are left: %w", n, w.size-pos, batch.ErrShort)}
	case !assignedSound(b):
		return nil, 0, &FaultError{Position: pos, Err: batch.ErrChecksum}
	}
	return batch.Batch(b), n, nil
}

// FaultError is damage met at a position; errors of other types come from reading.
type FaultError struct {
	Position int64
	Err      error
}

func (f *FaultError) Error() string { return fmt.Sprintf("at byte %d: %v", f.Position, f.Err) }
func (f *FaultError) Unwrap() error { return f.Err }

// IsFault reports whether err is damage, and returns it.
func IsFault(err error) (*FaultError, bool) {
	var f *FaultError
	ok := errors.As(err, &f)
	return f, ok
}

// Positions of the batch header that stay what they are in every version of the format (docs/formats/batch.md).
const (
	batchMagicAt    = 4
	batchAssigned   = 48
	batchProducedAt = 48
	batchSizeAt     = 52
)

// batchMagic is how the bytes behind a batch's first checksum begin.
var batchMagic = [4]byte{'M', 'G', 'B', '1'}

// Assigned reports whether b begins with an assigned part whose checksum is good.
func Assigned(b []byte) bool { return assignedSound(b) }

func assignedSound(b []byte) bool {
	return len(b) >= batchAssigned && checksum(b[batchMagicAt:batchAssigned]) == le.Uint32(b)
}

// sound reports whether both checksums of the batch at pos are good, whatever its version and attributes: bytes that are
// exactly what somebody wrote, and that this release does not understand, are newer, not damaged.
func (w *Window) sound(pos int64) (bool, error) {
	head, err := w.Bytes(pos, batch.HeaderSize)
	if err != nil || len(head) < batch.HeaderSize || [4]byte(head[batchMagicAt:]) != batchMagic || !assignedSound(head) {
		return false, err
	}
	n := le.Uint32(head[batchSizeAt:])
	if n < batch.HeaderSize || n > maxFutureBatch || int64(n) > w.size-pos {
		return false, nil
	}
	b, err := w.Bytes(pos, int(n))
	if err != nil {
		return false, err
	}
	return checksum(b[batchSizeAt:]) == le.Uint32(b[batchProducedAt:]), nil
}

// maxFutureBatch bounds what is read to tell a newer batch from a damaged one.
const maxFutureBatch = 4 * batch.MaxBatch
