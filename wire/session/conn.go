// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Listener accepts connections.
type Listener interface {
	// Accept waits for the next connection whose handshake is complete.
	Accept(ctx context.Context) (Conn, error)
	Addr() net.Addr
	// Close stops listening, closes every connection with code ShuttingDown, and returns when they and
	// their goroutines are gone. The packet conn stays its owner's.
	Close() error
}

// Conn is a connection. Its owner calls Close even after it has failed: only Close frees everything.
type Conn interface {
	// OpenLane opens a lane, waiting while the peer allows no more of them. The peer hears of a lane
	// with the first frame on it.
	OpenLane(ctx context.Context) (*Lane, error)
	// AcceptLane waits for the peer to open a lane.
	AcceptLane(ctx context.Context) (*Lane, error)
	// SetMaxFrame bounds the bodies that all lanes of the connection accept from now on. It starts at
	// wire.MaxFrameBeforeAuth; both sides raise it when authentication has succeeded.
	SetMaxFrame(n uint32)
	// Close ends the connection and tells the peer why (code 0: nothing is wrong). What is still on its
	// way is lost. It returns when the goroutines of the connection and its lanes are gone.
	Close(c code.Code, msg string) error
	// Done is closed when the connection has ended, whoever ended it.
	Done() <-chan struct{}
	// Err returns nil while the connection lives, then why it ended, as a *code.Error.
	Err() error
	RemoteAddr() net.Addr
	LocalAddr() net.Addr
}

// shared is what the lanes of one connection have in common.
type shared struct {
	cfg      Config
	maxFrame atomic.Uint32
	link     link

	mu      sync.Mutex
	closed  bool
	writers sync.WaitGroup
}

// link is what a lane needs of the transport's connection.
type link interface {
	// abort ends the connection without waiting: the peer broke the protocol, or the path is broken.
	abort(c code.Code, msg string)
}

func newShared(cfg Config, l link) *shared {
	s := &shared{cfg: cfg, link: l}
	s.maxFrame.Store(wire.MaxFrameBeforeAuth)
	return s
}

// spawn starts a goroutine that Close waits for, unless the connection is closed.
func (s *shared) spawn(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.writers.Go(run)
	return true
}

// wait lets no goroutine start any more and waits for those that run.
func (s *shared) wait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.writers.Wait()
}
