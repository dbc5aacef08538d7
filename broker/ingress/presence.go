// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// How long the end of a session waits for a shard that is being opened.
const (
	lastPatience = time.Minute
	lastRetry    = 50 * time.Millisecond
)

// lastKey names a last record.
type lastKey struct {
	ref host.Ref
	id  uint64
}

// setLast keeps a record that is published when this connection ends other than by close.
func (l *lane) setLast(h wire.Header, body []byte) error {
	var f wire.SetLast
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayLast(&f)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	key := lastKey{s.Ref, f.ID}
	fresh := l.conn.claim(key)
	to := host.Func(func(a shard.Answer) {
		if a.Err == nil {
			l.send(h.Corr, &wire.Done{})
			return
		}
		if fresh {
			l.conn.unclaim(key)
		}
		l.sendError(h.Corr, a.Err)
	})
	ev := &shard.SetLast{ID: f.ID, Grace: time.Duration(f.GraceMs) * time.Millisecond, Batch: f.Batch, To: to}
	if refused := s.Post(ev, to); refused != nil {
		to(shard.Answer{Err: refused})
	}
	return nil
}

// mayLast checks all that would be checked if the record were published now: later there is nobody to tell.
func (l *lane) mayLast(f *wire.SetLast) (*host.Shard, error) {
	m := l.conn.srv.cfg.Table.Load()
	if err := l.mayPublish(m, f.Log); err != nil {
		return nil, err
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return nil, refused
	}
	if len(f.Batch) > batch.MaxLast {
		return nil, code.New(code.TooLarge, "a last record of %d bytes", len(f.Batch)).With(code.DetailLimit, batch.MaxLast)
	}
	b, err := batch.CheckProduced(f.Batch, batch.Limits{})
	switch {
	case err != nil:
		return nil, batchError(err)
	case b.Count() != 1 || b.ProducerID() != f.ID || b.ProducerSequence() != 1 || b.DedupID() != nil || b.HasSettlement():
		return nil, code.New(code.BadRequest, "a last record is a batch of one record, of the session as its producer, with sequence 1, without a dedup id and without messages to settle")
	}
	return s, l.mayPublishKeys(m, f.Log, b)
}

// clearLast takes the record back.
func (l *lane) clearLast(h wire.Header, body []byte) error {
	var f wire.ClearLast
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	m := l.conn.srv.cfg.Table.Load()
	if err := l.mayPublish(m, f.Log); err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return l.lane.Send(l.frameError(h.Corr, refused))
	}
	to := host.Func(func(a shard.Answer) {
		if a.Err != nil {
			l.sendError(h.Corr, a.Err)
			return
		}
		l.conn.unclaim(lastKey{s.Ref, f.ID})
		l.send(h.Corr, &wire.Done{})
	})
	if refused := s.Post(&shard.ClearLast{ID: f.ID, To: to}, to); refused != nil {
		to(shard.Answer{Err: refused})
	}
	return nil
}

// claim makes the session this connection's and says whether it was not before. A session that comes over another
// connection than before ends with the new one only.
func (c *conn) claim(key lastKey) (fresh bool) {
	c.srv.cfg.Sessions.Claim(key.ref, key.id, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.lasts[key]; known {
		return false
	}
	if c.lasts == nil {
		c.lasts = map[lastKey]struct{}{}
	}
	c.lasts[key] = struct{}{}
	return true
}

func (c *conn) unclaim(key lastKey) {
	c.srv.cfg.Sessions.Release(key.ref, key.id, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lasts, key)
}

// endSessions ends what lived on the connection, and returns when that is on its way. why is what ended the connection:
// its client may have closed it, and then nothing is published. When it is this node that goes away, the clients come back;
// their records wait for them.
func (c *conn) endSessions(why error) {
	c.mu.Lock()
	lasts, closing := c.lasts, c.closing
	c.lasts = nil
	c.mu.Unlock()
	closed := errors.Is(why, session.ErrPeerClosed)
	if closing != nil && !closed {
		return
	}
	for key := range lasts {
		if !c.srv.cfg.Sessions.Release(key.ref, key.id, c) {
			continue
		}
		var ev shard.Event = shard.ConnectionLost{ID: key.id}
		if closed {
			ev = &shard.ClearLast{ID: key.id}
		}
		if err := c.srv.deliver(key.ref, ev); err != nil && err.Code != code.NotFound { // a log that is gone has nothing to say
			c.srv.log.Warn("the end of a session was not told to its shard: its last record is published after the next opening",
				"log", key.ref.Log, "shard", key.ref.Shard, "error", err)
		}
	}
}

// deliver gives an event to a shard, also to one that is being opened.
func (s *Server) deliver(ref host.Ref, ev shard.Event) *code.Error {
	timeout := time.NewTimer(lastPatience)
	defer timeout.Stop()
	for {
		to, refused := led(s.cfg.Table.Load(), ref.Log, ref.Shard)
		if refused == nil {
			refused = to.Post(ev, nil)
		}
		if refused == nil || refused.Class != code.ClassRefused {
			return refused
		}
		again := time.NewTimer(lastRetry)
		select {
		case <-again.C:
		case <-timeout.C:
			return refused
		case <-s.draining:
			return refused
		}
		again.Stop()
	}
}
