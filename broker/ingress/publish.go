// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

const retryOpening = 50 * time.Millisecond

// publish reads one publish and gives it to its shard. Before that it waits for room: the client's window, not
// the broker's memory, holds what is too much.
func (l *lane) publish(ctx context.Context, h wire.Header) error {
	n := int64(h.Size)
	if n > l.conn.srv.cfg.InFlightConnection {
		l.conn.srv.metrics.published(fatal, 0, 0, time.Time{})
		return l.skip(h, code.New(code.TooLarge, "a publish of %d bytes", n).With(code.DetailLimit, uint64(l.conn.srv.cfg.InFlightConnection)))
	}
	buf, err := l.receive(ctx, n)
	if errors.Is(err, errNoRoomLeft) { // what is left of the body is passed over with the next header
		l.conn.srv.metrics.published(refused, 0, 0, time.Time{})
		return l.lane.Send(l.frameError(h.Corr, code.New(code.Overloaded, "the broker has no room for a publish of %d bytes", n).Retry(time.Second)))
	}
	if err != nil {
		return err
	}
	if err := l.submit(h, buf); err != nil {
		l.release(n)
		l.conn.srv.metrics.published(outcomeOf(err), 0, len(buf), time.Time{})
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	return nil
}

// submit checks a publish and gives it to its shard, which answers it.
func (l *lane) submit(h wire.Header, buf []byte) error {
	var f wire.Publish
	if err := wire.ParseFrame(h, &f, buf); err != nil {
		return badFrame(err)
	}
	m := l.conn.srv.cfg.Table.Load()
	if err := l.mayPublish(m, f.Log); err != nil {
		return err
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return refused
	}
	b, err := batch.CheckProduced(f.Batch, l.conn.srv.cfg.Batch)
	if err != nil {
		return batchError(err)
	}
	if err := l.mayPublishKeys(m, f.Log, b); err != nil {
		return err
	}
	if err := l.maySettle(m, f.Log, b); err != nil {
		return err
	}
	r := &host.Request{
		Buffer: buf, Head: f.Head(), Correlation: h.Corr, Lane: l, Began: time.Now(),
		Publish: shard.Publish{Batch: b, Previous: f.Previous, Level: shard.AckLevel(f.Ack)},
	}
	for _, x := range f.Conditions {
		r.Publish.Conditions = append(r.Publish.Conditions, shard.Condition{Record: int(x.Record), Version: x.Version})
	}
	for _, x := range f.Derives {
		r.Publish.Derives = append(r.Publish.Derives, shard.Derive{Record: int(x.Record), Op: shard.Op(x.Op)})
	}
	if f.TimeoutMs > 0 {
		r.Publish.Deadline = l.conn.srv.cfg.Wall().Add(time.Duration(f.TimeoutMs) * time.Millisecond).UnixMicro()
	}
	r.Publish.To = r
	if refused := s.Submit(r); refused != nil {
		return refused
	}
	return nil
}

// granted is what the last request of a kind was allowed with: the same three mean the same answer.
type granted struct {
	table   *router.Map
	claims  *token.Claims
	id      batch.LogID
	err     error
	limited bool // to some keys
}

// mayPublish is asked for every batch, and answers most from the last one's answer.
func (l *lane) mayPublish(m *router.Map, id batch.LogID) error {
	x, claims := &l.publishes, l.conn.claims.Load()
	if x.table != m || x.claims != claims || x.id != id {
		rl, found := m.ByID(router.LogID(id))
		*x = granted{table: m, claims: claims, id: id}
		x.limited, x.err = l.grantedOf(claims, rl, found, token.Write, token.Publish)
	}
	return x.err
}

// mayPublishKeys holds each record to what the token grants of the log's keys. Most tokens grant all of them.
func (l *lane) mayPublishKeys(m *router.Map, id batch.LogID, b batch.Batch) error {
	if !l.publishes.limited {
		return nil
	}
	rl, _ := m.ByID(router.LogID(id)) // mayPublish has found it
	var meta batch.Meta
	for metas := b.Metas(); ; {
		ok, err := metas.Next(&meta)
		if err != nil || !ok {
			return err
		}
		if !l.publishes.claims.AllowsKey(token.Publish, rl.Name, meta.Key) {
			return code.New(code.PermissionDenied, "the token does not grant publishing the key %.100q to %s", meta.Key, rl.Name)
		}
	}
}

// maySettle holds a batch that settles messages to what a consumer needs.
func (l *lane) maySettle(m *router.Map, id batch.LogID, b batch.Batch) error {
	if !b.HasSettlement() {
		return nil
	}
	rl, found := m.ByID(router.LogID(id))
	return l.allow(rl, found, token.Consume)
}

func batchError(err error) error {
	switch {
	case errors.Is(err, batch.ErrLimit):
		return code.New(code.TooLarge, "the batch is refused: %w", err)
	case errors.Is(err, batch.ErrChecksum), errors.Is(err, batch.ErrShort), errors.Is(err, batch.ErrMagic), errors.Is(err, batch.ErrSize):
		return code.New(code.CorruptBatch, "the batch is refused: %w", err)
	case errors.Is(err, batch.ErrVersion), errors.Is(err, batch.ErrAttributes):
		return code.New(code.Unsupported, "the batch is refused: %w", err)
	}
	return code.New(code.BadRequest, "the batch is refused: %w", err)
}

// Answer queues the answer to a publish. The shard's goroutine calls it.
func (l *lane) Answer(r *host.Request, ack shard.Ack, err *code.Error) (first bool) {
	l.release(int64(len(r.Buffer)))
	l.account(r, ack, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	first = len(l.out) == 0
	if err != nil {
		l.out = append(l.out, l.frameError(r.Correlation, err)...)
		return first
	}
	l.ok = wire.Published{
		BaseOffset: ack.BaseOffset, Generation: ack.Generation, AppendTime: ack.AppendTime, Count: ack.Count, Replicas: ack.Replicas,
		Sums: ack.Sums,
	}
	if ack.Flushed {
		l.ok.Reached |= wire.ReachedFlushed
	}
	if ack.Committed {
		l.ok.Reached |= wire.ReachedCommitted
	}
	if ack.Duplicate {
		l.ok.Reached |= wire.ReachedDuplicate
	}
	l.out = wire.AppendFrame(l.out, r.Correlation, &l.ok)
	return first
}

// account counts a publish that its shard has answered.
func (l *lane) account(r *host.Request, ack shard.Ack, err *code.Error) {
	o := stored
	switch {
	case err != nil:
		o = outcomeOf(err)
	case ack.Duplicate:
		o = duplicate
	}
	l.conn.srv.metrics.published(o, r.Publish.Batch.Count(), len(r.Buffer), r.Began)
}

// Flush sends the answers of a commit as one. A client that does not take its answers loses its lane.
func (l *lane) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) == 0 {
		return
	}
	if err := l.lane.Send(l.out); err != nil {
		l.conn.log.Load().Debug("the lane takes no more answers", "error", err)
		l.lane.Reset(code.Overloaded)
	}
	l.out = l.out[:0]
}
