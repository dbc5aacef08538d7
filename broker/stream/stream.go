// SPDX-License-Identifier: Apache-2.0

// Package stream serves one subscription: history from the log at the subscriber's pace, then live batches
// from the hub, joined without gap or repeat; it writes one lane and refuses to hold up a publisher.
package stream

import (
	"context"
	"errors"
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	readChunk = 256 << 10      // of history that one turn of one shard takes
	liveChunk = 256 << 10      // of live batches that one turn takes
	coalesce  = 64 << 10       // small frames are joined up to this size
	maxAhead  = 24 * time.Hour // a start time further in the future is a mistake in its unit
)

// ProgressEvery is the time between two progress notes of an idle subscription.
const ProgressEvery = 5 * time.Second

// Lane is what a subscription writes to. A write waits for the subscriber, at most its progress deadline.
type Lane interface {
	Write(parts ...[]byte) error
}

// Part is one shard of a subscription.
type Part struct {
	Start wire.Start
	Shard *host.Shard
}

// part is where a subscription stands in one shard.
type part struct {
	id    uint32
	shard *host.Shard
	seq   uint64 // next batch to read from the log while not live
	next  uint64 // next offset to deliver
	after int64  // batches appended before this time are passed over
	until uint64 // with an end: stop there
	epoch uint64 // of its cursor
	live  bool
	done  bool
}

// Subscription is one being served.
type Subscription struct {
	lane  Lane
	queue *fanout.Queue
	sel   *fanout.Selection
	keep  []int
	parts []*part
	byID  map[uint32]*part
	ends  bool // stop at each part's until
	stop  fanout.Policy
	out   []byte
	taken fanout.Taken

	durable *durable // nil: it has no cursor
	notes   notes
	tally   tally
	stats   *Stats
}

// ended is how a subscription stops: reason nil when it reached its end or was asked to.
type ended struct{ reason *code.Error }

func (e *ended) Error() string { return "subscription ended" }

// Open resolves where the subscription starts in each shard and registers it. The answer to send is
// returned; nothing is delivered before Serve.
func Open(ctx context.Context, lane Lane, req *wire.Subscribe, parts []Part, now time.Time, d Durable) (*Subscription, *wire.Subscribed, error) {
	if err := checkLimits(req); err != nil {
		return nil, nil, err
	}
	policy := policyOf(req)
	s := &Subscription{
		lane: lane, ends: req.UntilMark, stop: policy, byID: make(map[uint32]*part, len(parts)),
		notes: notes{slots: make(chan struct{}, maxCommits)},
	}
	s.sel = fanout.NewSelection(req.Filters)
	s.queue = fanout.NewQueue(fanout.Limits{Records: int(req.QueueRecords), Bytes: int(req.QueueBytes)}, policy, s.sel)
	if req.Durable != "" {
		ok, err := s.openDurable(ctx, req, parts, now, d)
		if err != nil {
			s.Close()
			return nil, nil, err
		}
		return s, ok, nil
	}
	ok := &wire.Subscribed{}
	for _, p := range parts {
		started, err := s.start(ctx, p, now)
		if err != nil {
			s.Close()
			return nil, nil, err
		}
		ok.Shards = append(ok.Shards, started)
	}
	return s, ok, nil
}

// Close takes the subscription out of every hub, and lets go of its cursor.
func (s *Subscription) Close() {
	s.leave()
	if s.durable != nil {
		s.durable.hold.release()
	}
}

func (s *Subscription) leave() {
	for _, p := range s.parts {
		p.shard.Hub().Leave(s.queue)
	}
}

// Serve delivers until the subscription ends, the lane breaks or ctx is done, and returns the end to tell
// the subscriber; nil when the lane is broken.
func (s *Subscription) Serve(ctx context.Context) *wire.End {
	defer s.leave()
	defer s.count()
	progress := time.NewTimer(ProgressEvery)
	defer progress.Stop()
	for {
		more, over, end := s.Step(ctx)
		if over {
			return end
		}
		if more {
			select {
			case <-progress.C: // a filtered reader of a long history gets little else
				s.progress()
				progress.Reset(ProgressEvery)
			default:
			}
			continue
		}
		select {
		case <-s.queue.Ready():
			continue
		case <-ctx.Done():
		case <-progress.C:
			s.Idle(time.Now())
		}
		progress.Reset(ProgressEvery)
	}
}

// Step delivers some of what there is, without waiting for more, and says whether there may be more at once. Once it is
// over, end is what to tell the subscriber; nil when the lane is broken.
func (s *Subscription) Step(ctx context.Context) (more, over bool, end *wire.End) {
	s.takeNotes()
	more, err := s.turn()
	if e := s.flush(); err == nil { // an end comes behind what was delivered before it
		err = e
	}
	if err != nil {
		return false, true, s.end(err)
	}
	s.count()
	if ctx.Err() != nil {
		return false, true, s.end(context.Cause(ctx))
	}
	return more, false, nil
}

// Waits says whether nothing has come since the last Step: Serve would sleep.
func (s *Subscription) Waits() bool {
	select {
	case <-s.queue.Ready():
		return false
	default:
		return true
	}
}

// Idle says where the subscriber stands, as Serve does now and then. The next Step sends it.
func (s *Subscription) Idle(now time.Time) {
	s.progress()
	s.touch(now)
}

// turn delivers some of what there is and says whether there may be more at once.
func (s *Subscription) turn() (more bool, err error) {
	s.queue.Take(&s.taken, liveChunk)
	for i := range s.taken.Deliveries {
		if err := s.live(&s.taken.Deliveries[i]); err != nil {
			return false, err
		}
	}
	more = len(s.taken.Deliveries) > 0
	for _, id := range s.taken.Left {
		if s.stop == fanout.Disconnect {
			s.tally.slow++
			return false, &ended{code.New(code.SlowConsumer, "the subscription's queue is full").With(code.DetailShard, uint64(id))}
		}
		s.byID[id].live = false
		s.tally.catchUps++
	}
	for _, err := range s.taken.Ended {
		return false, err
	}
	done := s.ends
	for _, p := range s.parts {
		if !p.live && !p.done {
			busy, err := s.history(p)
			if err != nil {
				return false, err
			}
			more = more || busy
		}
		if s.ends && p.next >= p.until {
			p.done = true
		}
		done = done && p.done
	}
	if done {
		return false, &ended{}
	}
	return more, nil
}

// live delivers one thing from the queue.
func (s *Subscription) live(d *fanout.Delivery) error {
	p := s.byID[d.Shard]
	if d.NextOffset <= p.next || p.done {
		return nil
	}
	if d.AppendTime < p.after {
		p.next = d.NextOffset
		return nil
	}
	if !d.Lost.Empty() {
		s.gap(p, d.Lost.From, d.Lost.To, wire.GapDropped)
	}
	frame := d.Frame
	if frame == nil {
		s.gap(p, d.BaseOffset, d.NextOffset, wire.GapUnreadable)
	}
	p.next, p.seq = d.NextOffset, d.Sequence+1
	if frame == nil {
		return nil
	}
	s.tally.delivery(d.Records, len(frame))
	return s.write(frame)
}

// gap states that [from, to) will not be delivered, as far as it lies ahead.
func (s *Subscription) gap(p *part, from, to uint64, why wire.GapReason) {
	from = max(from, p.next)
	if to <= from {
		return
	}
	s.out = wire.AppendFrame(s.out, 0, &wire.Gap{Shard: p.id, From: from, To: to, Reason: why})
	s.tally.gap(why, from, to)
	p.next = to
}

// write sends frame bytes in order, joining small ones.
func (s *Subscription) write(b []byte) error {
	if len(s.out)+len(b) <= coalesce {
		s.out = append(s.out, b...)
		return nil
	}
	if len(b) <= coalesce/4 {
		if err := s.flush(); err != nil {
			return err
		}
		s.out = append(s.out, b...)
		return nil
	}
	err := s.lane.Write(s.out, b)
	s.out = s.out[:0]
	return err
}

func (s *Subscription) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	err := s.lane.Write(s.out)
	s.out = s.out[:0]
	if cap(s.out) > 2*coalesce {
		s.out = nil
	}
	return err
}

// progress tells an idle subscriber that it is alive and where it could resume, never ahead of what is
// still to be delivered.
func (s *Subscription) progress() {
	for _, p := range s.parts {
		v := p.shard.View()
		if p.live {
			// What came since the last delivery was not for this subscriber, or was dropped and is stated here.
			if pos, lost, caught := p.shard.Hub().Caught(s.queue); caught {
				s.gap(p, lost.From, lost.To, wire.GapDropped)
				p.next = max(p.next, pos.Offset)
			}
		}
		s.out = wire.AppendFrame(s.out, 0, &wire.Progress{Shard: p.id, Next: p.next, Mark: v.Ceiling, Generation: v.Generation})
	}
}

// end turns why a subscription stopped into what its subscriber is told.
func (s *Subscription) end(err error) *wire.End {
	var (
		done   *ended
		typed  *code.Error
		reason *code.Error
	)
	switch {
	case errors.As(err, &done):
		reason = done.reason
	case errors.Is(err, context.Canceled): // the subscriber asked for it
	case errors.As(err, &typed):
		reason = typed
	default:
		return nil
	}
	e := &wire.End{Shard: wire.AllShards}
	if reason != nil {
		e.Code, e.Message = reason.Code, reason.Message
		if at, ok := reason.Details.Get(code.DetailShard); ok {
			e.Shard = uint32(at)
		}
	}
	for _, p := range s.parts {
		e.Resume = append(e.Resume, wire.Resume{Shard: p.id, Offset: p.next, Generation: p.shard.View().Generation})
	}
	return e
}
