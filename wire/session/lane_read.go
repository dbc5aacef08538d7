// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"io"
	"sync"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	smallBuffer = 2 << 10
	bigBuffer   = 64 << 10
	// firstBody is how much is allocated for a body on the word of its header alone; beyond it a buffer
	// grows fourfold as the bytes arrive, which copies a third of the body again.
	firstBody = 64 << 10
)

// inbound is the reading side of a lane, owned by its reader.
type inbound struct {
	// unread aliases small or big.
	unread []byte
	// An idle lane waits in its own small buffer; a burst, seen by a read that fills it, borrows a big
	// one from the pool until it is over. So an idle lane costs little and a busy one few reads.
	small [smallBuffer]byte
	big   *[bigBuffer]byte
	full  bool
	// head collects a header that arrives in pieces.
	head [wire.HeaderSize]byte
	// rest is what is left of the body of the current frame.
	rest uint32
}

var bigBuffers = sync.Pool{New: func() any { return new([bigBuffer]byte) }}

// ReadHeader returns the header of the next frame, passing over what was not read of the last one. It
// waits without limit. io.EOF means that the peer has finished in order. A header that breaks the
// protocol, or a body larger than allowed at this time (Conn.SetMaxFrame), ends the connection.
func (l *Lane) ReadHeader() (wire.Header, error) {
	if err := l.Skip(l.in.rest); err != nil {
		return wire.Header{}, err
	}
	if len(l.in.unread) == 0 {
		if err := l.fill(); err != nil {
			return wire.Header{}, err
		}
	}
	var raw [wire.HeaderSize]byte
	if len(l.in.unread) >= len(raw) {
		l.in.unread = l.in.unread[copy(raw[:], l.in.unread):]
	} else {
		if err := l.readFull(l.in.head[:]); err != nil {
			return wire.Header{}, err
		}
		raw = l.in.head
	}
	h, err := wire.ParseHeader(raw)
	if limit := l.shared.maxFrame.Load(); err == nil && h.Size > limit {
		err = code.New(code.Protocol, "frame %s: body of %d bytes exceeds %d", h.Type, h.Size, limit).
			With(code.DetailLimit, uint64(limit))
	}
	if err != nil {
		l.shared.link.abort(code.Protocol, code.From(err).Message)
		return wire.Header{}, err
	}
	l.in.rest = h.Size
	return h, nil
}

// ReadBody fills dst with the next len(dst) bytes of the body; no more than the body has left. Bytes go
// from the transport into dst with one copy.
func (l *Lane) ReadBody(dst []byte) error {
	if len(dst) > int(l.in.rest) {
		return code.New(code.Internal, "read body: %d bytes asked for, %d left in the frame", len(dst), l.in.rest)
	}
	if err := l.readFull(dst); err != nil {
		return err
	}
	l.in.rest -= uint32(len(dst))
	return nil
}

// AppendBody appends what is left of the body to dst. What it allocates follows the bytes that have
// arrived, never the size that a header claims.
func (l *Lane) AppendBody(dst []byte) ([]byte, error) {
	for l.in.rest > 0 {
		n := int(l.in.rest)
		if room := cap(dst) - len(dst); room < n {
			if room == 0 {
				dst = grow(dst, n)
			}
			n = min(n, cap(dst)-len(dst))
		}
		dst = dst[:len(dst)+n]
		if err := l.ReadBody(dst[len(dst)-n:]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// grow makes room in dst for up to n bytes: firstBody at first, then four times what is there.
func grow(dst []byte, n int) []byte {
	out := make([]byte, len(dst), len(dst)+min(n, max(firstBody, 3*len(dst))))
	copy(out, dst)
	return out
}

// Skip passes over n bytes of the body.
func (l *Lane) Skip(n uint32) error {
	if n > l.in.rest {
		return code.New(code.Internal, "skip body: %d bytes asked for, %d left in the frame", n, l.in.rest)
	}
	for n > 0 {
		if len(l.in.unread) == 0 {
			if err := l.fillSoon(); err != nil {
				return err
			}
		}
		k := min(int(n), len(l.in.unread))
		l.in.unread = l.in.unread[k:]
		l.in.rest -= uint32(k)
		n -= uint32(k)
	}
	return nil
}

// readFull fills dst from inside a frame: from the buffer first, then past it.
func (l *Lane) readFull(dst []byte) error {
	n := copy(dst, l.in.unread)
	l.in.unread = l.in.unread[n:]
	if n == len(dst) {
		return nil
	}
	for n < len(dst) {
		// Small leftovers go through the buffer, so that the frames behind them come along.
		if len(dst)-n < smallBuffer {
			if err := l.fillSoon(); err != nil {
				return err
			}
			k := copy(dst[n:], l.in.unread)
			l.in.unread = l.in.unread[k:]
			n += k
			continue
		}
		l.deadline()
		k, err := l.read(dst[n:])
		n += k
		if err != nil && n < len(dst) {
			return insideFrame(err)
		}
	}
	return l.stream.SetReadDeadline(time.Time{})
}

// fillSoon is fill from inside a frame: the peer has begun it and must go on with it.
func (l *Lane) fillSoon() error {
	l.deadline()
	if err := l.fill(); err != nil {
		return insideFrame(err)
	}
	return l.stream.SetReadDeadline(time.Time{})
}

func (l *Lane) deadline() {
	_ = l.stream.SetReadDeadline(time.Now().Add(l.shared.cfg.ReadTimeout)) // never fails on an open stream; the read tells
}

// fill reads once into the empty buffer.
func (l *Lane) fill() error {
	in := &l.in
	if in.full && in.big == nil {
		in.big = bigBuffers.Get().(*[bigBuffer]byte)
	} else if !in.full && in.big != nil {
		bigBuffers.Put(in.big)
		in.big = nil
	}
	buf := in.small[:]
	if in.big != nil {
		buf = in.big[:]
	}
	n, err := l.read(buf)
	in.unread = buf[:n]
	in.full = n == len(buf)
	if n > 0 {
		return nil // an error comes again with the next read
	}
	if in.big != nil {
		bigBuffers.Put(in.big)
		in.big, in.full = nil, false
	}
	return err
}

func (l *Lane) read(p []byte) (int, error) {
	n, err := l.stream.Read(p)
	if n > 0 {
		l.shared.cfg.Stats.BytesIn.Add(uint64(n))
	} else if err == nil {
		err = io.ErrNoProgress
	}
	return n, err
}

// insideFrame: an end in order in the middle of a frame is none.
func insideFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return code.New(code.Protocol, "lane read: the peer finished inside a frame")
	}
	return err
}
