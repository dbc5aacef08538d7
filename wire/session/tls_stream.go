// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"margay.dev/wire/code"
)

const (
	// recordSize is the most that a TLS record holds.
	recordSize = 16 << 10
	// explainWithin is how long a lane whose connection broke waits for the link to say why: TCP keeps no
	// order between the two.
	explainWithin = 2 * time.Second
	// lingerFor is how long a lane that was closed here waits for its peer to close it too. To go at once could
	// take away from the peer what it has not read yet.
	lingerFor = 5 * time.Second
)

var records = sync.Pool{New: func() any { return new([recordSize]byte) }}

// tlsStream is the stream of a lane over TLS: a TCP connection of its own, and what the link says of it.
type tlsStream struct {
	conn   *tlsConn
	number uint64
	raw    *rawConn
	tls    *tls.Conn

	// held is a record that is not full and whose rest follows at once; owned by who writes.
	held *[recordSize]byte
	fill int

	mu sync.Mutex
	// in and out are why nothing can be read and written any more. In is io.EOF when the peer has finished.
	in, out error
	// finished: our direction has ended in order. dead: the TCP connection is closed.
	finished, dead bool
	// told is closed once somebody, here or there, has said how the lane ends.
	told, done chan struct{}
}

func newTLSStream(c *tlsConn, number uint64, raw *rawConn, t *tls.Conn) *tlsStream {
	return &tlsStream{conn: c, number: number, raw: raw, tls: t, told: make(chan struct{}), done: make(chan struct{})}
}

func (s *tlsStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	over := s.in
	s.mu.Unlock()
	if over != nil {
		return 0, over
	}
	n, err := s.tls.Read(p)
	if n > 0 || err == nil {
		return n, nil // an error comes again with the next read
	}
	if errors.Is(err, io.EOF) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.in == nil {
			s.in = io.EOF
		}
		return 0, s.in
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, convert("lane read", err)
	}
	return 0, s.broken("lane read", err, &s.in)
}

// Write fills whole records and hands many of them to the kernel at a time.
func (s *tlsStream) Write(p []byte, more bool) (int, error) {
	s.mu.Lock()
	over := s.out
	s.mu.Unlock()
	if over != nil || len(p) == 0 && s.fill == 0 {
		return 0, over
	}
	size := len(p)
	if s.fill > 0 || more && len(p) < recordSize {
		if s.held == nil {
			s.held = records.Get().(*[recordSize]byte)
		}
		n := copy(s.held[s.fill:], p)
		s.fill += n
		p = p[n:]
		if len(p) == 0 && more {
			return size, nil
		}
		if err := s.put(s.held[:s.fill]); err != nil {
			return 0, err
		}
		s.fill = 0
		records.Put(s.held)
		s.held = nil
	}
	whole := len(p)
	if more {
		whole -= whole % recordSize
	}
	if err := s.put(p[:whole]); err != nil {
		return 0, err
	}
	if whole < len(p) {
		return s.Write(p[whole:], more)
	}
	return size, nil
}

// put writes through TLS.
func (s *tlsStream) put(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := s.tls.Write(p)
	if err == nil {
		return nil
	}
	if errors.Is(err, errStandstill) {
		err = code.New(code.Timeout, "lane write: %w", err)
		s.endWrites(err)
		return err
	}
	return s.broken("lane write", err, &s.out)
}

// broken finds out why the TCP connection ended: which is one of s.in and s.out.
func (s *tlsStream) broken(op string, err error, which *error) error {
	late := time.NewTimer(explainWithin)
	defer late.Stop()
	select {
	case <-s.told:
	case <-s.conn.life.Done():
	case <-late.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if *which == nil {
		if *which = s.conn.Err(); *which == nil {
			*which = code.New(code.Unavailable, "%s: %w", op, err)
		}
	}
	if which == &s.out {
		closeOnce(s.done)
	}
	return *which
}

func (s *tlsStream) SetReadDeadline(t time.Time) error { return s.raw.SetReadDeadline(t) }

func (s *tlsStream) Done() <-chan struct{} { return s.done }

// Finish announces the end by TLS: only that is io.EOF to the peer.
func (s *tlsStream) Finish() error {
	s.mu.Lock()
	over := s.out
	s.mu.Unlock()
	if over != nil {
		return over
	}
	err := s.tls.CloseWrite()
	s.mu.Lock()
	s.finished = err == nil
	s.mu.Unlock()
	s.endWrites(laneError("lane write", 0, false))
	return err
}

// endWrites records why nothing can be written any more.
func (s *tlsStream) endWrites(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		s.out = err
	}
	closeOnce(s.done)
}

// CancelRead tells the peer to write no more, unless it has finished.
func (s *tlsStream) CancelRead(c code.Code) {
	s.mu.Lock()
	tell := s.in == nil && !s.dead
	if s.in == nil {
		s.in = laneError("lane read", 0, false)
	}
	closeOnce(s.told)
	s.mu.Unlock()
	if tell {
		s.conn.post(message{kind: msgStop, lane: s.number, code: c})
		s.raw.stopReads()
	}
}

func (s *tlsStream) Cancel(c code.Code) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if !dead {
		s.conn.post(message{kind: msgReset, lane: s.number, code: c})
	}
	s.abandon(laneError("lane", 0, false), laneError("lane", 0, false))
}

// hear does what the link says of the lane.
func (s *tlsStream) hear(m message) {
	if m.kind == msgReset {
		s.reset(m.code)
	} else {
		s.stopped(m.code)
	}
}

// reset: the peer has ended both directions.
func (s *tlsStream) reset(c code.Code) {
	s.abandon(laneError("lane read", c, true), laneError("lane write", c, true))
}

// stopped: the peer reads no more. What it has sent before can still be read.
func (s *tlsStream) stopped(c code.Code) {
	s.endWrites(laneError("lane write", c, true))
	s.mu.Lock()
	closeOnce(s.told)
	s.mu.Unlock()
	s.raw.stopWrites()
}

// abandon ends both directions, with what has not arrived.
func (s *tlsStream) abandon(in, out error) {
	s.mu.Lock()
	s.dead = true
	if s.in == nil {
		s.in = in
	}
	if s.out == nil {
		s.out = out
	}
	closeOnce(s.told)
	closeOnce(s.done)
	s.mu.Unlock()
	s.raw.kill()
}

// Release closes the TCP connection: at once when both directions have ended, otherwise when the peer has
// ended its own, which the message of CancelRead asks of it.
func (s *tlsStream) Release() {
	s.mu.Lock()
	linger := s.finished && !s.dead && !errors.Is(s.in, io.EOF)
	s.mu.Unlock()
	if linger && s.conn.spawn(func() {
		s.raw.shut()
		s.raw.drain(lingerFor)
		s.gone()
	}) {
		return
	}
	s.gone()
}

func (s *tlsStream) gone() {
	_ = s.raw.Close() // what was to be said is written
	s.conn.forget(s)
}

// closeOnce is called under a mutex.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
