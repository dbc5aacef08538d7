// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/wire"
)

// restBuffer is the largest buffer that a subscription holds while it rests.
const restBuffer = 4 << 10

// OpenFeed begins a subscription to one shard at its live end, for an owner who changes what it selects, adds frames of his
// own between two Steps, and drives it himself. It catches up when it falls behind. The position is that from which on it
// has what is selected.
func OpenFeed(lane Lane, id uint32, shard *host.Shard, sel *fanout.Selection) (*Subscription, fanout.Position, error) {
	s := &Subscription{lane: lane, stop: fanout.CatchUp, byID: map[uint32]*part{}, sel: sel}
	s.queue = fanout.NewQueue(fanout.Limits{}, fanout.CatchUp, sel)
	pos, err := shard.Hub().JoinLatest(s.queue)
	if err != nil {
		return nil, fanout.Position{}, err
	}
	s.add(&part{id: id, shard: shard, seq: pos.Sequence, next: pos.Offset, live: true})
	return s, pos, nil
}

// Reselect changes what a feed selects, and returns the position from which on it has what is selected now.
func (s *Subscription) Reselect(sel *fanout.Selection) fanout.Position {
	s.sel = sel
	return s.parts[0].shard.Hub().Reselect(s.queue, sel)
}

// Add sends a frame of the feed's owner behind what was sent before it.
func (s *Subscription) Add(corr uint64, f wire.Frame) error {
	if len(s.out)+wire.HeaderSize+f.Size() <= coalesce {
		s.out = wire.AppendFrame(s.out, corr, f)
		return nil
	}
	return s.write(wire.AppendFrame(nil, corr, f))
}

// Flush sends what was added.
func (s *Subscription) Flush() error { return s.flush() }

// Next is the offset that a feed delivers next.
func (s *Subscription) Next() uint64 { return s.parts[0].next }

// Ready holds a token when something may have come since the last Step.
func (s *Subscription) Ready() <-chan struct{} { return s.queue.Ready() }

// Rest lets go of what a subscription needs only while it is busy: a node has many that are idle.
func (s *Subscription) Rest() {
	if cap(s.out) > restBuffer {
		s.out = nil
	}
	s.taken = fanout.Taken{}
	s.keep = nil
}
