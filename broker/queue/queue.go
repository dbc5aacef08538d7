// SPDX-License-Identifier: Apache-2.0

// Package queue serves the consume lanes of queues: it cuts what the shards' groups hand out to a consumer from the log, writes
// it to the consumer's lane and passes on what that settles; it decides nothing about messages and refuses to hold up a shard.
package queue

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// ProgressEvery is the time between two progress notes.
	ProgressEvery = 5 * time.Second

	joinWithin  = 10 * time.Second      // that all shards of a lane take to let its consumer in
	retryPost   = 20 * time.Millisecond // until a shard that has too much to do is told again
	leaveWithin = 30 * time.Second      // that a lane that is over goes on telling shards so
)

// Writer is what a lane writes to. A write waits for the consumer, at most its progress deadline.
type Writer interface {
	Write(parts ...[]byte) error
}

// Shard is what a lane needs of a shard. *host.Shard is one.
type Shard interface {
	// Post gives the core an event. It never waits.
	Post(event shard.Event, to host.Waiter) *code.Error
	Find(offset uint64) (sequence uint64, err error)
	SharedBatch(sequence uint64) (*host.Shared, error)
	KeptBatch(sequence uint64) *host.Shared
	View() shard.View
	Now() int64 // us
	// OnEnd calls f when the shard is closed, at once if it is; f must not wait.
	OnEnd(f func(why *code.Error)) (forget func())
}

var _ Shard = (*host.Shard)(nil)

// Part is one shard of a lane.
type Part struct {
	ID    uint32
	Shard Shard
}

// Config is what a lane needs of its owner.
type Config struct {
	// Resolve finds the shard that leads now: messages may be settled that were handed out by one that was closed since.
	Resolve func(shard uint32) (Shard, *code.Error)
	// Ended is called with why a shard of the lane ended. It must not wait.
	Ended func(shard uint32, why *code.Error)
	Stats *Stats
}

// Lane is one consume lane being served. One goroutine calls Serve, another one the methods for what the consumer sends.
type Lane struct {
	w       Writer
	cfg     Config
	group   string
	members []*member
	byShard map[uint32]*member
	pool    *pool
	room    *semaphore.Weighted // for what is asked for and not answered
	wake    chan struct{}

	mu      sync.Mutex
	hands   []*hand           // to be written, in the order they came
	notes   []byte            // answers to be written
	noted   int64             // of room that they hold
	asking  int               // requests that are not answered
	ends    []wire.ConsumeEnd // to be written
	closed  bool              // nothing is written any more
	leaving bool              // the consumer said that it leaves
	staying int               // members that have not left yet
	samples samples

	// Owned by Serve.
	out     []byte
	cut     cutter
	failing []failing
	owing   bool // a shard is to be told something again
}

// Open lets a consumer into its group in every shard. The answer to send is returned; nothing is written before Serve.
func Open(ctx context.Context, w Writer, f *wire.Consume, parts []Part, cfg Config) (*Lane, *wire.Consumed, error) {
	l := &Lane{
		w: w, cfg: cfg, group: f.Group, byShard: make(map[uint32]*member, len(parts)), pool: newPool(int(f.MaxInFlight)),
		room: semaphore.NewWeighted(maxAsked), wake: make(chan struct{}, 1),
	}
	for _, p := range parts {
		m := newMember(l, p, f)
		l.members = append(l.members, m)
		l.byShard[p.ID] = m
	}
	ok, err := l.join(ctx)
	if err != nil {
		l.close()
		l.depart(true)
		return nil, nil, err
	}
	l.cfg.Stats.Lanes.Add(1)
	return l, ok, nil
}

// join waits until all members are in.
func (l *Lane) join(ctx context.Context) (*wire.Consumed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinWithin, code.New(code.Timeout, "the shards did not answer within %v", joinWithin).Retry(time.Second))
	defer cancel()
	for _, m := range l.members {
		if refused := m.join(l.group); refused != nil {
			return nil, m.named(refused)
		}
	}
	ok := &wire.Consumed{}
	for _, m := range l.members {
		select {
		case <-m.answered:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if m.refused != nil {
			return nil, m.named(m.refused)
		}
		if ok.GroupID != 0 && ok.GroupID != m.joined.ID {
			return nil, code.New(code.Unavailable, "the shards do not agree yet which group %q is", l.group).Retry(time.Second)
		}
		ok.GroupID, ok.AckWaitUs = m.joined.ID, uint64(m.joined.AckWait)
		ok.Shards = append(ok.Shards, wire.Consuming{Shard: m.id, Generation: m.generation, Resets: m.joined.Resets})
	}
	return ok, nil
}

// signal wakes Serve.
func (l *Lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Ready has something when there may be something to write.
func (l *Lane) Ready() <-chan struct{} { return l.wake }

// close throws away what has not been written.
func (l *Lane) close() {
	l.mu.Lock()
	l.closed = true
	l.hands, l.notes, l.ends = nil, nil, nil
	l.mu.Unlock()
	for _, m := range l.members {
		m.seat.leave()
	}
}

// depart leaves every group, for good. It waits only for shards that have too much to do.
func (l *Lane) depart(orderly bool) {
	until := time.Now().Add(leaveWithin)
	for left := l.members; ; {
		var again []*member
		for _, m := range left {
			if !m.leave(orderly, nil) {
				again = append(again, m)
			}
		}
		if left = again; len(left) == 0 || time.Now().After(until) {
			return
		}
		t := time.NewTimer(retryPost)
		<-t.C
	}
}

// Depth is how many messages are out, and how many of those wait to be written.
func (l *Lane) Depth() (out, unsent int) { return l.pool.taken() }
