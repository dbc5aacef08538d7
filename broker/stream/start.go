// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

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

// earliestTime is below every append time that this product can have given: a smaller start time is a
// number of seconds or milliseconds taken for microseconds.
var earliestTime = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// CheckTime refuses what can only be a time in another unit.
func CheckTime(at uint64, now time.Time) error {
	if t := int64(at); t < earliestTime || t > now.Add(maxAhead).UnixMicro() {
		return code.New(code.BadRequest, "time %d is not one in microseconds since 1970, between 2000 and a day from now", int64(at))
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
