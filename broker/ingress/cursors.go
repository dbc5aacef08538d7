// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"sync"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/broker/stream"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

// maxCommitFrame bounds the body of a Commit: some twelve bytes for each shard.
const maxCommitFrame = 1 << 20

// durable is what a subscription on this lane needs for its cursor.
func (l *lane) durable() stream.Durable {
	return stream.Durable{
		Holders: &l.conn.srv.holders,
		End:     func(why *code.Error) { l.conn.cancelSubscription(l.lane, why) },
	}
}

// commit passes a commit on to the subscription, which answers it.
func (l *lane) commit(ctx context.Context, sub *stream.Subscription, h wire.Header) error {
	if h.Size > maxCommitFrame {
		sub.Refuse(ctx, h.Corr, code.New(code.TooLarge, "a commit of %d bytes", h.Size).With(code.DetailLimit, maxCommitFrame))
		return l.lane.Skip(h.Size)
	}
	body := make([]byte, h.Size)
	if err := l.lane.ReadBody(body); err != nil {
		return err
	}
	var f wire.Commit
	if err := wire.ParseFrame(h, &f, body); err != nil {
		sub.Refuse(ctx, h.Corr, code.From(badFrame(err)))
		return nil
	}
	sub.Commit(ctx, h.Corr, &f)
	return nil
}

// ledShards are the shards of a log that this broker has open. One that it leads and does not have open refuses: what is
// said of the others would be taken for all.
func ledShards(m *router.Map, rl *router.Log, id batch.LogID) ([]*host.Shard, error) {
	var out []*host.Shard
	for n := range rl.Shards {
		s, refused := led(m, id, uint32(n))
		switch {
		case refused == nil:
			out = append(out, s)
		case refused.Code != code.NotLeader:
			return nil, refused
		}
	}
	return out, nil
}

// cursorLog finds a log whose cursors the caller may see and delete: whoever may subscribe could take over any of them
// and move it to the end, so nothing more is asked for.
func (l *lane) cursorLog(id batch.LogID) ([]*host.Shard, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(id))
	if err := l.allow(rl, found, token.Subscribe); err != nil {
		return nil, err
	}
	return ledShards(m, rl, id)
}

func (l *lane) cursorList(ctx context.Context, f *wire.CursorList) (wire.Frame, error) {
	shards, err := l.cursorLog(f.Log)
	if err != nil {
		return nil, err
	}
	out := &wire.Cursors{}
	for _, s := range shards {
		var list []shard.Cursor
		if err := s.Ask(ctx, func(c *shard.Core) { list = c.Cursors() }); err != nil {
			return nil, err
		}
		for i := range list {
			out.Cursors = append(out.Cursors, wire.CursorInfo{
				Name: list[i].Name, Shard: s.Ref.Shard, Offset: list[i].Offset, Generation: list[i].Generation,
				Updated: list[i].Updated, Held: l.conn.srv.holders.Held(f.Log, list[i].Name, s.Ref.Shard),
			})
		}
	}
	if out.Size() > wire.MaxFrame {
		return nil, code.New(code.TooLarge, "the log has %d cursors: more than one answer holds", len(out.Cursors))
	}
	return out, nil
}

// cursorDelete deletes a cursor in every shard, and answers when that is committed. It is there when it is in one of them.
func (l *lane) cursorDelete(h wire.Header, body []byte) error {
	var f wire.CursorDelete
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	shards, err := l.cursorLog(f.Log)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	d := &deletion{lane: l, corr: h.Corr, of: f, left: len(shards)}
	if len(shards) == 0 {
		d.left = 1
		d.answered(code.New(code.NotLeader, "this node leads no shard of the log"))
	}
	for _, s := range shards {
		to := host.Func(func(a shard.Answer) { d.answered(a.Err) })
		if refused := s.Post(&shard.DeleteCursor{Name: f.Name, To: to}, to); refused != nil {
			d.answered(refused)
		}
	}
	return nil
}

// deletion is one on its way in several shards.
type deletion struct {
	lane *lane
	corr uint64
	of   wire.CursorDelete

	mu      sync.Mutex
	left    int
	deleted bool
	err     *code.Error // the worst: what is certain of none comes before not_found
}

func (d *deletion) answered(err *code.Error) {
	d.mu.Lock()
	switch {
	case err == nil:
		d.deleted = true
	case d.err == nil || errors.Is(d.err, code.NotFound):
		d.err = err
	}
	d.left--
	last, deleted, failed := d.left == 0, d.deleted, d.err
	d.mu.Unlock()
	if !last {
		return
	}
	if deleted {
		d.lane.conn.srv.holders.End(d.of.Log, d.of.Name, code.New(code.Deleted, "the durable subscription %q was deleted", d.of.Name))
	}
	if failed == nil || deleted && errors.Is(failed, code.NotFound) {
		d.lane.send(d.corr, &wire.Done{})
		return
	}
	d.lane.sendError(d.corr, failed)
}

// send answers a request from a shard's goroutine.
func (l *lane) send(corr uint64, f wire.Frame) { l.sendBytes(wire.AppendFrame(nil, corr, f)) }

func (l *lane) sendError(corr uint64, why *code.Error) { l.sendBytes(l.frameError(corr, why)) }

// sendBytes sends an answer. A client that does not take its answers loses its lane.
func (l *lane) sendBytes(frame []byte) {
	if err := l.lane.Send(frame); err != nil {
		l.lane.Reset(code.Overloaded)
	}
}
