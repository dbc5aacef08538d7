// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bufio"
	"io"
	"sync"
	"time"
)

// flushAfter bounds how long a written line may stay in the buffer: far below what a person notices,
// long enough that a million lines a second do not become a million writes.
const flushAfter = 20 * time.Millisecond

// Buffered gathers small writes. What was written reaches the file after 20 ms, also when nothing
// follows, so a tail of a quiet stream is never late.
type Buffered struct {
	mu    sync.Mutex
	w     *bufio.Writer
	timer *time.Timer
	armed bool
	err   error // the first failure; what follows would leave a hole in the output
}

// NewBuffered buffers writes to w until Close.
func NewBuffered(w io.Writer) *Buffered {
	b := &Buffered{w: bufio.NewWriterSize(w, 64<<10)}
	b.timer = time.AfterFunc(time.Hour, func() { _ = b.Flush() }) // the error is kept for the next write
	b.timer.Stop()
	return b
}

// With calls write with the buffer to itself, so that what it writes stays together.
func (b *Buffered) With(write func(io.Writer) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if b.err = write(b.w); b.err != nil {
		return b.err
	}
	if !b.armed && b.w.Buffered() > 0 {
		b.armed = true
		b.timer.Reset(flushAfter)
	}
	return nil
}

// Flush writes out the buffer.
func (b *Buffered) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	if b.err == nil {
		b.err = b.w.Flush()
	}
	return b.err
}

// Close stops the timer and writes out the buffer; it leaves the file open.
func (b *Buffered) Close() error {
	b.timer.Stop()
	return b.Flush()
}
