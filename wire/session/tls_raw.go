// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// rawConn is the TCP connection below TLS. It lets no write end in the middle of a TLS record as long as the peer
// takes something, because behind one that did nothing could be written; it tells a bare end of the connection from one
// that TLS has announced; and either direction can be given up while somebody waits in it.
type rawConn struct {
	net.Conn
	// standstill is how long a write may make no progress.
	standstill time.Duration

	// closing is called once, when the connection is closed.
	closing func()

	mu sync.Mutex
	// noReads and noWrites: the direction is given up.
	noReads, noWrites, closed bool
	// hurry, when it is set, is when the last write ends.
	hurry time.Time

	// reading is held by who reads.
	reading sync.Mutex
}

// Read never says io.EOF: crypto/tls would take it for an end in order when it comes between two records.
func (r *rawConn) Read(p []byte) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.mu.Lock()
	over := r.noReads
	r.mu.Unlock()
	if over {
		return 0, errGivenUp
	}
	n, err := r.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errCutOff
	}
	return n, err
}

func (r *rawConn) Write(p []byte) (written int, err error) {
	moved := time.Now()
	for {
		late, err := r.armWrite()
		if err != nil {
			return written, err
		}
		n, err := r.Conn.Write(p[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
		now := time.Now()
		if n > 0 {
			moved = now
		}
		if late || now.Sub(moved) >= r.standstill {
			return written, errStandstill
		}
	}
}

// armWrite sets the deadline of one step of a write. Late says that there is no time for another.
func (r *rawConn) armWrite() (late bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noWrites {
		return false, errGivenUp
	}
	t := time.Now().Add(min(watchEvery, r.standstill))
	if late = !r.hurry.IsZero() && !t.Before(r.hurry); late {
		t = r.hurry
	}
	return late, r.SetWriteDeadline(t)
}

// SetReadDeadline is for who reads; it cannot take back stopReads.
func (r *rawConn) SetReadDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noReads {
		return nil
	}
	return r.Conn.SetReadDeadline(t)
}

// past wakes who waits: a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// stopReads ends the read under way and every later one.
func (r *rawConn) stopReads() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noReads = true
	_ = r.Conn.SetReadDeadline(past()) // fails on a closed connection, where nobody waits
}

// stopWrites ends the write under way and every later one.
func (r *rawConn) stopWrites() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noWrites = true
	_ = r.SetWriteDeadline(past())
}

// finishBy lets no write go on beyond t.
func (r *rawConn) finishBy(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hurry = t
	if !r.noWrites {
		_ = r.SetWriteDeadline(t)
	}
}

// shut sends the end of the connection's outbound direction behind what was written.
func (r *rawConn) shut() {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // on a connection that is broken there is nobody to tell
	}
}

// drain throws away what comes until the peer ends or the time is over. Reads were stopped.
func (r *rawConn) drain(within time.Duration) {
	r.reading.Lock() // who was in a read has left it
	defer r.reading.Unlock()
	r.mu.Lock()
	_ = r.Conn.SetReadDeadline(time.Now().Add(within))
	r.mu.Unlock()
	buf := bigBuffers.Get().(*[bigBuffer]byte)
	defer bigBuffers.Put(buf)
	for {
		if _, err := r.Conn.Read(buf[:]); err != nil {
			return
		}
	}
}

// Close closes the connection; what was written still arrives.
func (r *rawConn) Close() error { return r.end(false) }

// kill closes the connection; what has not arrived is lost.
func (r *rawConn) kill() { _ = r.end(true) }

func (r *rawConn) end(now bool) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	closing := r.closing
	r.mu.Unlock()
	if c, ok := r.Conn.(*net.TCPConn); ok && now {
		_ = c.SetLinger(0) // then the end is a reset
	}
	err := r.Conn.Close()
	if closing != nil {
		closing()
	}
	return err
}
