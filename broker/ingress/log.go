// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// strangersPerSecond bounds the lines that somebody without a credential, or with a broken client, can have
// written to an operator's disk.
const strangersPerSecond = 10

// connIDs name connections: short enough to read, unique within a run of the node, and never the same as in
// the run before, whose lines are in the same log.
type connIDs struct {
	run  string
	last atomic.Uint64
}

func newConnIDs() *connIDs {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // never fails
	return &connIDs{run: hex.EncodeToString(b)}
}

func (c *connIDs) next() string { return c.run + "-" + strconv.FormatUint(c.last.Add(1), 10) }

// sampler lets so many events of a second through and counts the others.
type sampler struct {
	mu     sync.Mutex
	second int64
	left   int
	hidden uint64
}

// take says whether the event is to be told, and how many before it were not.
func (s *sampler) take(now time.Time) (ok bool, hidden uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.left = second, strangersPerSecond
	}
	if s.left == 0 {
		s.hidden++
		return false, 0
	}
	s.left--
	hidden, s.hidden = s.hidden, 0
	return true, hidden
}

// sampled logs what peers can cause at will.
func (s *Server) sampled(l *slog.Logger, level slog.Level, msg string, args ...any) {
	ok, hidden := s.strangers.take(s.cfg.Wall())
	if !ok {
		return
	}
	if hidden > 0 {
		args = append(args, "more_not_shown", hidden)
	}
	l.Log(context.Background(), level, msg, args...)
}

// named gives a connection its id, under which all that is logged about it can be found.
func (c *conn) named() {
	c.id = c.srv.ids.next()
	c.log.Store(c.srv.log.With("conn", c.id, "remote", c.c.RemoteAddr().String()))
}

// known adds whose connection it is to all that is logged about it from now on.
func (c *conn) known(subject string) {
	if old := c.claims.Load(); old != nil && old.Subject == subject {
		return // shown another token of the same subject
	}
	l := c.srv.log.With("conn", c.id, "remote", c.c.RemoteAddr().String(), "subject", subject)
	c.log.Store(l)
	l.Debug("authenticated")
}

// ended logs why a connection is over. Most are because their clients have gone, which is for debugging.
func (c *conn) ended() {
	why := code.From(c.c.Err())
	switch {
	case why == nil:
	case why.Code == code.Unauthenticated:
		c.srv.sampled(c.log.Load(), slog.LevelInfo, "connection closed", "reason", why.Code.Error(), "message", why.Message)
	default:
		c.log.Load().Debug("connection closed", "reason", why.Code.Error(), "message", why.Message)
	}
}

// subscriptionEnded tells of a subscription that was ended for what its subscriber did or did not do.
func (c *conn) subscriptionEnded(log batch.LogID, end *wire.End) {
	level, reason := slog.LevelInfo, end.Code.Error()
	switch end.Code {
	case 0:
		level, reason = slog.LevelDebug, "done"
	case code.ShuttingDown, code.Opening, code.Deleted:
		level = slog.LevelDebug
	default:
		if c.c.Err() != nil { // the end of the connection says why
			level = slog.LevelDebug
		}
	}
	c.log.Load().Log(context.Background(), level, "subscription ended", "log", log, "reason", reason, "message", end.Message)
}
