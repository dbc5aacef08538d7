// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"sync"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// ErrLaneFull says that Send would queue more than Config.OutboundBytes; nothing of it was queued. The
// peer reads too slowly: drop, wait or reset, as the caller's promise to it demands.
var ErrLaneFull = errors.New("lane send: outbound buffer is full")

// stream is what a transport gives a lane: two byte streams in opposite directions, each of which can
// be finished (all bytes arrive, then the end) or cancelled (with a code, now). Errors are *code.Error
// already, except io.EOF.
type stream interface {
	Read(p []byte) (int, error)
	// Write waits for the peer, but fails with code.Timeout when nothing has moved for Config.WriteTimeout; then
	// nothing can be written any more. With more, other bytes follow at once: p may be held back until they do.
	Write(p []byte, more bool) (int, error)
	SetReadDeadline(t time.Time) error
	// Finish ends the outbound direction in order.
	Finish() error
	// CancelRead ends the inbound direction at once; the peer's writes fail with the code.
	CancelRead(c code.Code)
	// Cancel ends both directions at once; bytes that have not arrived yet, also of an outbound direction
	// that is finished, are lost.
	Cancel(c code.Code)
	// Release says that nobody will use the stream again.
	Release()
	// Done is closed when nothing can be written any more.
	Done() <-chan struct{}
}

// Lane is one bidirectional stream of frames. One goroutine reads it, any number write to it; its owner
// calls Close or Reset in the end.
type Lane struct {
	shared *shared
	stream stream
	in     inbound

	// turn is held by who writes to the stream: what one call writes stays together. A channel rather
	// than a mutex, because it is held across writes.
	turn chan struct{}
	out  outbound

	closing sync.Once
	closed  chan struct{}
}

func newLane(s *shared, st stream) *Lane {
	s.cfg.Stats.OpenLanes.Add(1)
	l := &Lane{shared: s, stream: st, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	l.out.wake = make(chan struct{}, 1)
	return l
}

// Done is closed when nothing can be sent any more: after CloseWrite, Close or Reset, after a write has
// failed, when the peer stops reading, and when the connection ends.
func (l *Lane) Done() <-chan struct{} { return l.stream.Done() }

// CloseWrite sends what is queued and then ends the outbound direction; the peer reads io.EOF behind the
// last frame. Reading goes on.
func (l *Lane) CloseWrite() error { return l.finish() }

// Close sends what is queued, ends both directions and returns when the lane's goroutine is gone, at the
// latest when the peer has read nothing for Config.WriteTimeout. What the peer still sends is thrown
// away. Close after Close or Reset does nothing.
func (l *Lane) Close() error {
	err := l.finish()
	l.end(0)
	return err
}

// Reset ends both directions at once and tells the peer why; queued frames are dropped. It returns when
// the lane's goroutine is gone.
func (l *Lane) Reset(c code.Code) {
	l.stream.Cancel(c)
	_ = l.finish() // the stream is cancelled: this only waits
	l.end(c)
}

func (l *Lane) end(c code.Code) {
	l.closing.Do(func() {
		l.stream.CancelRead(c)
		l.stream.Release()
		l.shared.cfg.Stats.OpenLanes.Add(-1)
		close(l.closed)
	})
	<-l.closed
}

// Refuse answers the frame whose header was just read with an error and passes over its body. With
// wire.Header.Supported it is how a frame of a newer peer is met: typed answer, and the lane lives on.
func (l *Lane) Refuse(h wire.Header, err error) error {
	return l.SendFrame(h.Corr, wire.NewError(err))
}

// ReadSupported is ReadHeader for a lane on which every type and flag that this build does not know is
// to be answered with Unsupported and passed over.
func (l *Lane) ReadSupported() (wire.Header, error) {
	for {
		h, err := l.ReadHeader()
		if err != nil {
			return h, err
		}
		unsupported := h.Supported()
		if unsupported == nil {
			return h, nil
		}
		if err := l.Refuse(h, unsupported); err != nil {
			return h, err
		}
	}
}
