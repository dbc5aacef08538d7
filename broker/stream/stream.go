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
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	readChunk     = 256 << 10       // of history that one turn of one shard takes
	liveChunk     = 256 << 10       // of live batches that one turn takes
	coalesce      = 64 << 10        // small frames are joined up to this size
	progressEvery = 5 * time.Second // between two progress notes of an idle subscription
	maxAhead      = 24 * time.Hour  // a start time further in the future is a mistake in its unit
)

// earliestTime is below every append time that this product can have given: a smaller start time is a
// number of seconds or milliseconds taken for microseconds.
var earliestTime = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

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

// Bounds of what a subscription may ask its queue to hold.
const (
	maxQueueRecords = 1 << 20
	maxQueueBytes   = 64 << 20
)

func checkLimits(req *wire.Subscribe) error {
	if req.QueueRecords > maxQueueRecords {
		return code.New(code.TooLarge, "a queue of %d records", req.QueueRecords).With(code.DetailLimit, maxQueueRecords)
	}
	if req.QueueBytes > maxQueueBytes {
		return code.New(code.TooLarge, "a queue of %d bytes", req.QueueBytes).With(code.DetailLimit, maxQueueBytes)
	}
	return nil
}

// policyOf gives a live subscription drop_new, and one that starts from history or has a cursor catch_up.
func policyOf(req *wire.Subscribe) fanout.Policy {
	switch req.Policy {
	case wire.PolicyDropNew:
		return fanout.DropNew
	case wire.PolicyDropOld:
		return fanout.DropOld
	case wire.PolicyCatchUp:
		return fanout.CatchUp
	case wire.PolicyDisconnect:
		return fanout.Disconnect
	default:
	}
	for _, s := range req.Shards {
		if s.Kind != wire.StartLatest || req.Durable != "" {
			return fanout.CatchUp
		}
	}
	return fanout.DropNew
}

// start places one part. A part that starts at the live end is registered here; any other reads history
// first and joins where the hub stands when it has read up to it.
func (s *Subscription) start(ctx context.Context, p Part, now time.Time) (wire.Started, error) {
	x := &part{id: p.Start.Shard, shard: p.Shard}
	if p.Start.Kind == wire.StartLatest {
		pos, err := p.Shard.Hub().JoinLatest(s.queue)
		if err != nil {
			return wire.Started{}, err
		}
		x.seq, x.next, x.live = pos.Sequence, pos.Offset, true
	} else if err := s.startHistory(ctx, x, p.Start, now); err != nil {
		return wire.Started{}, err
	}
	s.add(x)
	v := p.Shard.View()
	x.until = v.Ceiling
	return wire.Started{Shard: x.id, Generation: v.Generation, Offset: x.next, Latest: v.Ceiling}, nil
}

func (s *Subscription) add(x *part) {
	s.parts = append(s.parts, x)
	s.byID[x.id] = x
}

// startHistory places a part anywhere but at the live end.
func (s *Subscription) startHistory(ctx context.Context, x *part, st wire.Start, now time.Time) error {
	switch st.Kind {
	case wire.StartEarliest:
		v := x.shard.View()
		x.seq, x.next = v.Start.Sequence, v.Start.Offset
		return nil
	case wire.StartOffset:
		return s.startAt(ctx, x, st.At, st.Generation)
	case wire.StartTime:
		return s.startTime(x, st.At, now)
	default:
		return code.New(code.BadRequest, "start kind %d is unknown", st.Kind)
	}
}

func (s *Subscription) startAt(ctx context.Context, x *part, offset, generation uint64) error {
	var refused *code.Error
	if err := x.shard.Ask(ctx, func(c *shard.Core) { refused = c.CheckResume(offset, generation) }); err != nil {
		return err
	}
	if refused != nil {
		return refused.With(code.DetailShard, uint64(x.id))
	}
	x.next = offset
	return s.seek(x)
}

// seek finds the batch that holds the part's next offset. One at or above the live end waits there.
func (s *Subscription) seek(x *part) error {
	live := x.shard.Hub().Position()
	if x.next >= live.Offset {
		x.seq = live.Sequence
		return nil
	}
	seq, err := x.shard.Find(x.next)
	if err != nil {
		return host.ReadError(err)
	}
	x.seq = min(seq, live.Sequence)
	return nil
}

// CheckTime refuses what can only be a time in another unit.
func CheckTime(at uint64, now time.Time) error {
	if t := int64(at); t < earliestTime || t > now.Add(maxAhead).UnixMicro() {
		return code.New(code.BadRequest, "time %d is not one in microseconds since 1970, between 2000 and a day from now", at)
	}
	return nil
}

func (s *Subscription) startTime(x *part, at uint64, now time.Time) error {
	if err := CheckTime(at, now); err != nil {
		return err
	}
	t := int64(at)
	offset, err := x.shard.FindTime(t)
	if err != nil {
		return host.ReadError(err)
	}
	x.next, x.after = max(offset, x.shard.View().Start.Offset), t
	return s.seek(x)
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
	progress := time.NewTimer(progressEvery)
	defer progress.Stop()
	for {
		s.takeNotes()
		more, err := s.turn()
		if e := s.flush(); err == nil { // an end comes behind what was delivered before it
			err = e
		}
		if err != nil {
			return s.end(err)
		}
		s.count()
		if ctx.Err() != nil {
			return s.end(context.Cause(ctx))
		}
		if more {
			select {
			case <-progress.C: // a filtered reader of a long history gets little else
				s.progress()
				progress.Reset(progressEvery)
			default:
			}
			continue
		}
		select {
		case <-s.queue.Ready():
			continue
		case <-ctx.Done():
		case <-progress.C:
			s.progress()
			s.touch(time.Now())
		}
		progress.Reset(progressEvery)
	}
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

// history delivers one chunk from the log, and joins the hub when it has reached it.
func (s *Subscription) history(p *part) (busy bool, err error) {
	if start := p.shard.View().Start; p.next < start.Offset || p.seq < start.Sequence { // a trim may begin the log inside a batch
		s.gap(p, p.next, start.Offset, wire.GapRetention)
		p.seq = max(p.seq, start.Sequence)
	}
	hub := p.shard.Hub()
	if p.seq >= hub.Sequence() {
		if pos, ok := hub.Join(s.queue, p.seq); ok {
			p.live, p.next = true, max(p.next, pos.Offset)
			return false, nil
		}
		if err := hub.Err(); err != nil {
			return false, err
		}
		return true, nil // the hub has moved on meanwhile
	}
	var gap *storage.GapError
	chunk, err := p.shard.Read(p.seq, readChunk)
	switch {
	case errors.Is(err, storage.ErrDropped):
		return true, nil // retention passed us: the new start is in the view
	case errors.As(err, &gap):
		s.gap(p, p.next, gap.ToOffset, wire.GapAcceptedLoss)
		p.seq = gap.ToSequence
		return true, nil
	case err != nil:
		if e := hub.Err(); e != nil {
			return false, e
		}
		return false, host.ReadError(err)
	}
	return true, s.deliverStored(p, chunk)
}

// deliverStored sends runs of record batches as they are stored, and slices of those that the subscriber gets
// a part of; control batches never go to clients.
func (s *Subscription) deliverStored(p *part, chunk []byte) error {
	r := run{s: s, p: p, chunk: chunk, mark: p.shard.View().Ceiling}
	now := p.shard.Now()
	for r.at < len(chunk) {
		b := batch.Batch(chunk[r.at:])
		b = b[:b.Size()]
		if b.IsControl() || b.NextOffset() <= p.next || b.AppendTime() < p.after {
			if err := r.skip(b); err != nil {
				return err
			}
			continue
		}
		if b.BaseOffset() > p.next {
			if err := r.send(); err != nil {
				return err
			}
			s.gap(p, p.next, b.BaseOffset(), wire.GapAcceptedLoss)
		}
		keep, all := s.sel.Select(b, now, s.keep[:0])
		s.keep = keep
		if all {
			r.pass(b)
			continue
		}
		if err := r.skip(b); err != nil {
			return err
		}
		if len(keep) > 0 {
			if err := s.slice(p, r.mark, b, keep); err != nil {
				return err
			}
		}
	}
	return r.send()
}

// slice sends a part of a batch. One that its producer compressed beyond repair concerns nobody else.
func (s *Subscription) slice(p *part, mark uint64, b batch.Batch, keep []int) error {
	if frame, err := fanout.SliceFrame(p.id, mark, b, keep); err == nil {
		s.tally.delivery(len(keep), len(frame))
		return s.write(frame)
	}
	s.tally.gap(wire.GapUnreadable, b.BaseOffset(), b.NextOffset())
	s.out = wire.AppendFrame(s.out, 0, &wire.Gap{Shard: p.id, From: b.BaseOffset(), To: b.NextOffset(), Reason: wire.GapUnreadable})
	return nil
}

// run is a stretch of a chunk that goes out as it is stored: chunk[from:at].
type run struct {
	s        *Subscription
	p        *part
	chunk    []byte
	mark     uint64
	from, at int
	records  int
}

// pass adds a batch to the run.
func (r *run) pass(b batch.Batch) {
	r.at += len(b)
	r.records += b.Count()
	r.p.seq, r.p.next = b.Sequence()+1, max(r.p.next, b.NextOffset())
}

// skip ends the run before a batch and begins the next behind it.
func (r *run) skip(b batch.Batch) error {
	if err := r.send(); err != nil {
		return err
	}
	r.at += len(b)
	r.from = r.at
	r.p.seq = b.Sequence() + 1
	if !b.IsControl() {
		r.p.next = max(r.p.next, b.NextOffset())
	}
	return nil
}

// send sends the run.
func (r *run) send() error {
	stored := r.chunk[r.from:r.at]
	r.from = r.at
	if len(stored) == 0 {
		return nil
	}
	d := wire.Deliver{Shard: r.p.id, Mark: r.mark, Batch: batch.Batch(stored)}
	r.s.out = d.AppendHead(r.s.out)
	r.s.tally.delivery(r.records, len(stored))
	r.records = 0
	return r.s.write(stored)
}

// write sends frame bytes in order, joining small ones.
func (s *Subscription) write(b []byte) error {
	if len(s.out)+len(b) <= coalesce {
		s.out = append(s.out, b...)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	if len(b) <= coalesce/4 {
		s.out = append(s.out, b...)
		return nil
	}
	return s.lane.Write(b)
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
