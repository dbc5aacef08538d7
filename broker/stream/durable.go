// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// maxCommits is how many commits of one subscription may be unanswered; behind them its lane is not read.
const maxCommits = 64

// Durable is what a subscription with a cursor needs beside the others.
type Durable struct {
	Holders *Holders
	// End ends the subscription, with what its subscriber is told. It must not wait.
	End func(*code.Error)
}

// durable is the part of a subscription that has to do with its cursor.
type durable struct {
	name    string
	hold    *Hold
	touchAt time.Time
}

// notes are answers to commits, for Serve to send: a lane has one writer.
type notes struct {
	slots chan struct{} // one taken by each commit that is not answered

	mu     sync.Mutex
	frames []byte
	ready  int // how many they are
}

// openDurable opens the subscription's cursor in every shard, and takes it over from whoever holds it.
func (s *Subscription) openDurable(ctx context.Context, req *wire.Subscribe, parts []Part, now time.Time, d Durable) (*wire.Subscribed, error) {
	hold, err := d.Holders.open(ctx, req.Log, req.Durable, d.End)
	if err != nil {
		return nil, err
	}
	defer hold.pass()
	s.durable = &durable{name: req.Durable, hold: hold, touchAt: time.Now().Add(shard.CursorTouch)}
	ok := &wire.Subscribed{Durable: true}
	for _, p := range parts {
		started, err := s.startDurable(ctx, p, now)
		if err != nil {
			return nil, err
		}
		hold.take(p.Start.Shard)
		ok.Shards = append(ok.Shards, started)
	}
	return ok, nil
}

// startDurable places one part at its cursor, or where it says when there is none: then the cursor begins there.
func (s *Subscription) startDurable(ctx context.Context, p Part, now time.Time) (wire.Started, error) {
	x := &part{id: p.Start.Shard, shard: p.Shard}
	if err := s.checkCut(ctx, x, p.Start); err != nil {
		return wire.Started{}, err
	}
	at, err := s.openCursor(ctx, x, shard.OpenCursor{})
	if errors.Is(err, code.NotFound) {
		if err = s.place(ctx, x, p.Start, now); err != nil {
			return wire.Started{}, err
		}
		at, err = s.openCursor(ctx, x, shard.OpenCursor{Create: true, Start: x.next})
	}
	if err != nil {
		return wire.Started{}, err
	}
	v := p.Shard.View()
	if at.Resumed {
		x.next, x.after = at.Offset, 0
		if x.next < v.Start.Offset {
			x.seq = v.Start.Sequence // retention has passed the cursor: history says so, and goes on
		} else if err := s.seek(x); err != nil {
			return wire.Started{}, err
		}
	}
	x.epoch, x.until = at.Epoch, v.Ceiling
	s.add(x)
	return wire.Started{
		Shard: x.id, Generation: v.Generation, Offset: x.next, Latest: v.Ceiling, Resumed: at.Resumed, Epoch: at.Epoch,
	}, nil
}

// place puts x where a new cursor is to begin. It does not join the live end: somebody else may be faster in making the
// cursor, and what was queued until then would have to be taken back.
func (s *Subscription) place(ctx context.Context, x *part, st wire.Start, now time.Time) error {
	if st.Kind != wire.StartLatest {
		return s.startHistory(ctx, x, st, now)
	}
	pos := x.shard.Hub().Position()
	x.seq, x.next = pos.Sequence, pos.Offset
	return nil
}

// checkCut tells who resumes when what he has read was cut off since: his cursor lies before that, but not he.
func (s *Subscription) checkCut(ctx context.Context, x *part, st wire.Start) error {
	if st.Kind != wire.StartOffset || st.Generation == 0 {
		return nil
	}
	var refused *code.Error
	if err := x.shard.Ask(ctx, func(c *shard.Core) { refused = c.CheckResume(st.At, st.Generation) }); err != nil {
		return err
	}
	if refused != nil && refused.Code == code.Cut {
		return refused.With(code.DetailShard, uint64(x.id))
	}
	return nil
}

// openCursor opens the cursor in one shard and waits until that is committed.
func (s *Subscription) openCursor(ctx context.Context, x *part, ev shard.OpenCursor) (*shard.Cursor, error) {
	a, err := x.shard.Do(ctx, func(to any) shard.Event {
		ev.Name, ev.To = s.durable.name, to
		return &ev
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		e := *code.From(err) // others may have been given it too
		return nil, e.With(code.DetailShard, uint64(x.id))
	}
	return a.Cursor, nil
}

// Commit moves the subscription's cursor. The answer goes out with what Serve writes, once it is committed in every shard.
// It waits while too many are unanswered, which holds up the lane that commits come on.
func (s *Subscription) Commit(ctx context.Context, corr uint64, f *wire.Commit) {
	if s.durable == nil {
		s.Refuse(ctx, corr, code.New(code.BadRequest, "the subscription has no cursor to commit"))
		return
	}
	if !s.notes.take(ctx) {
		return
	}
	c := &commit{s: s, corr: corr, left: len(f.Shards)}
	for _, at := range f.Shards {
		p := s.byID[at.Shard]
		if p == nil {
			c.answered(code.New(code.BadRequest, "the subscription does not read shard %d", at.Shard))
			continue
		}
		s.submit(p, at.Offset, c.answered)
	}
}

// Refuse answers a commit that cannot be taken.
func (s *Subscription) Refuse(ctx context.Context, corr uint64, why *code.Error) {
	if s.notes.take(ctx) {
		s.note(wire.AppendFrame(nil, corr, wire.NewError(why)))
	}
}

func (n *notes) take(ctx context.Context) bool {
	select {
	case n.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// submit sends one commit on its way.
func (s *Subscription) submit(p *part, offset uint64, done func(*code.Error)) {
	to := host.Func(func(a shard.Answer) { done(a.Err) })
	list := []shard.CursorCommit{{Name: s.durable.name, Epoch: p.epoch, Offset: offset, To: to}}
	if refused := p.shard.Post(&shard.CommitCursors{List: list}, to); refused != nil {
		done(refused)
	}
}

// commit is one on its way in several shards.
type commit struct {
	s    *Subscription
	corr uint64

	mu   sync.Mutex
	left int
	err  *code.Error
}

// answered takes a shard's answer; the last one is passed on. What failed somewhere has failed.
func (c *commit) answered(err *code.Error) {
	c.mu.Lock()
	if err != nil && c.err == nil {
		c.err = err
	}
	c.left--
	last, failed := c.left == 0, c.err
	c.mu.Unlock()
	switch {
	case !last:
	case failed != nil:
		c.s.note(wire.AppendFrame(nil, c.corr, wire.NewError(failed)))
	default:
		c.s.note(wire.AppendFrame(nil, c.corr, &wire.Committed{}))
	}
}

// note leaves an answer for Serve, which frees its slot when it takes it.
func (s *Subscription) note(frame []byte) {
	s.notes.mu.Lock()
	s.notes.frames = append(s.notes.frames, frame...)
	s.notes.ready++
	s.notes.mu.Unlock()
	s.queue.Wake()
}

// takeNotes sends the answers that are there. They come before the next deliveries: who commits may be waiting.
func (s *Subscription) takeNotes() {
	s.notes.mu.Lock()
	frames, ready := s.notes.frames, s.notes.ready
	s.notes.frames, s.notes.ready = nil, 0
	s.notes.mu.Unlock()
	s.out = append(s.out, frames...)
	for range ready {
		<-s.notes.slots
	}
}

// Settle answers commits of a durable subscription that has come to its end, until its subscriber is done: he has read
// what came and may say so.
func (s *Subscription) Settle(ctx context.Context) {
	for {
		s.takeNotes()
		if s.flush() != nil {
			return
		}
		select {
		case <-s.queue.Ready():
		case <-ctx.Done():
			return
		}
	}
}

// touch shows once a day that the cursor has a holder, though nothing moves it.
func (s *Subscription) touch(now time.Time) {
	d := s.durable
	if d == nil || now.Before(d.touchAt) {
		return
	}
	d.touchAt = now.Add(shard.CursorTouch)
	for _, p := range s.parts {
		s.submit(p, 0, func(*code.Error) {}) // what stands in the way will be gone tomorrow, or the subscription
	}
}
