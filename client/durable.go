// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// storeEvery is how often a durable subscription stores how far its reader has got.
	storeEvery = time.Second
	// storeAtClose bounds what Close waits for that.
	storeAtClose = 2 * time.Second
	// maxStoring is how many commits of the kind that nobody waits for may be unanswered.
	maxStoring = 16
	// maxMissing is how many commits in a row may find no cursor before the subscription makes it anew. When it was
	// deleted, the subscription has been ended by then; this is for one that was forgotten under its holder, by a clock.
	maxMissing = 3
	// corrCommit and above are correlation ids of commits; those below are the subscription's.
	corrCommit uint64 = 1 << 32
)

// Durable gives the subscription a cursor of this name in each of its shards: the cluster remembers how far its reader
// has got, and who subscribes under the name again goes on there, also elsewhere and after a restart of everything. The
// options that say where to start count only where there is no such cursor yet.
//
// One subscription at a time holds the name. A newer one takes over, and this one ends with ErrTakenOver; one that was cut
// off meanwhile takes it back when it is there again. A cursor that nobody has used for 30 days of the stream's time is
// forgotten.
//
// A record counts as read when the next one is asked for. What was read is stored each second and at Close, so after a
// crash what was read last comes again: at least once. Retention does not wait for a cursor: what it has removed is a
// Gap of the next record. The policy is PolicyCatchUp unless another is asked for.
func Durable(name string) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) {
		if !wire.ValidName(name) {
			s.problems = append(s.problems, fmt.Errorf("durable name %q: want %s", name, wire.NameRule))
		}
		s.durable = name
	})
}

// ManualCommit leaves it to Subscription.Commit to store how far the reader has got.
func ManualCommit() SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.manualCommit = true })
}

// Resumed says whether the durable subscription found a cursor when it was made, and began where that stood. False: it is
// new, and began where its options say.
func (s *Subscription) Resumed() bool { return s.resumed }

// Commit stores where the reader stands: behind the last record that Records gave, so call it when that is dealt with.
// It returns when that is durable. It belongs to the goroutine that reads; while it waits, the receive buffer may take a
// little more than its bound.
func (s *Subscription) Commit(ctx context.Context) error {
	if s.cfg.durable == "" {
		return code.New(code.BadRequest, "commit %s: the subscription is not durable", s.name)
	}
	if err := s.store(ctx, s.stands(false)); err != nil {
		return err
	}
	return nil
}

// commits is the side of a durable subscription that stores positions.
type commits struct {
	mu      sync.Mutex
	stream  *subscribeStream // nil while there is none
	changed chan struct{}    // closed when stream changes
	next    uint64
	waiting map[uint64]*storing
	stored  map[uint32]uint64
	missing int // commits in a row that found no cursor
}

// storing is a commit on its way.
type storing struct {
	at   []wire.Committing
	done chan *Error // nil for one that nobody waits for
}

// holding is the record that an iteration has given and that does not count as read yet.
type holding struct {
	shard  *shardState
	offset uint64
	over   bool // the iteration has ended: the next one to ask for a record is done with this one too
}

// hand notes that an iteration has given a record. Called under turn.
func (s *Subscription) hand(h *holding, rec *Record) {
	if s.cfg.durable == "" {
		return
	}
	h.shard, _ = s.shard(rec.Shard)
	h.offset = rec.Offset
	if s.holdings == nil {
		s.holdings = map[*holding]struct{}{}
	}
	s.holdings[h] = struct{}{}
}

// asked notes that an iteration asks for the next record.
func (s *Subscription) asked(mine *holding) {
	if s.cfg.durable == "" {
		return
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	for h := range s.holdings {
		if h == mine || h.over {
			delete(s.holdings, h)
		}
	}
}

// leave ends an iteration. What it gave last stays unread until somebody asks for more.
func (s *Subscription) leave(h *holding) {
	if s.cfg.durable == "" {
		return
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	h.over = true
}

// stands is where the reader stands in each shard: behind all that was given, or with read behind what counts as read.
func (s *Subscription) stands(read bool) []wire.Committing {
	s.turn.Lock()
	defer s.turn.Unlock()
	at := make([]wire.Committing, 0, len(s.shards))
	for _, sh := range s.shards {
		offset := sh.next
		for h := range s.holdings {
			if read && h.shard == sh {
				offset = min(offset, h.offset)
			}
		}
		at = append(at, wire.Committing{Shard: sh.id, Offset: offset})
	}
	return at
}

// use makes a fresh stream the one that commits go over; nil when it is lost. Whose answers can come no more try again.
func (s *Subscription) use(st *subscribeStream) {
	if s.cfg.durable == "" {
		return
	}
	c := &s.commits
	c.mu.Lock()
	lost := c.waiting
	c.waiting, c.stream, c.missing = nil, st, 0
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
	c.mu.Unlock()
	for _, x := range lost {
		x.answer(code.New(code.Unavailable, "the connection was lost"))
	}
}

func (x *storing) answer(err *Error) {
	if x.done != nil {
		x.done <- err
	}
}

// placed takes the broker's word for where the cursors stand.
func (s *Subscription) placed(at wire.Started) {
	if s.cfg.durable == "" {
		return
	}
	c := &s.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored == nil {
		c.stored = map[uint32]uint64{}
	}
	c.stored[at.Shard] = at.Offset
}

// send sends a commit of what is not stored yet. done gets the answer; nil leaves it to the next second.
func (c *commits) send(at []wire.Committing, done chan *Error) (sent bool, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done == nil && len(c.waiting) >= maxStoring {
		return false, nil
	}
	x := &storing{done: done}
	for _, p := range at {
		if was, known := c.stored[p.Shard]; !known || p.Offset > was {
			x.at = append(x.at, p)
		}
	}
	if len(x.at) == 0 {
		return false, nil
	}
	if c.stream == nil {
		return false, code.New(code.Unavailable, "there is no connection")
	}
	c.next++
	corr := corrCommit + c.next
	if err := c.stream.lane.SendFrame(corr, &wire.Commit{Shards: x.at}); err != nil {
		return false, unavailable("commit", err)
	}
	if c.waiting == nil {
		c.waiting = map[uint64]*storing{}
	}
	c.waiting[corr] = x
	return true, nil
}

// settled takes the answer to a commit. An error that ends the subscription is returned.
func (s *Subscription) settled(corr uint64, err *Error) *Error {
	c := &s.commits
	c.mu.Lock()
	if err == nil || err.Code != code.NotFound {
		c.missing = 0
	} else {
		c.missing++
	}
	forgotten := c.missing >= maxMissing
	x := c.waiting[corr]
	delete(c.waiting, corr)
	if x != nil && err == nil {
		for _, p := range x.at {
			c.stored[p.Shard] = max(c.stored[p.Shard], p.Offset)
		}
	}
	c.mu.Unlock()
	if x != nil {
		x.answer(err)
	}
	switch {
	case forgotten:
		return code.New(code.Unavailable, "the cursor is gone: %s", err.Message)
	case err != nil && err.Code == code.TakenOver:
		return err
	}
	if err != nil {
		s.c.cfg.logger.Debug("a position was not stored; it is tried again", "stream", s.name, "error", err)
	}
	return nil
}

// store commits positions, over as many connections as it takes.
func (s *Subscription) store(ctx context.Context, at []wire.Committing) *Error {
	s.inbox.lift(true) // the answer comes behind deliveries that nobody may be reading
	defer s.inbox.lift(false)
	wait := s.newBackoff()
	for {
		s.commits.mu.Lock()
		changed := s.commits.changed
		s.commits.mu.Unlock()
		done := make(chan *Error, 1)
		sent, err := s.commits.send(at, done)
		if !sent && err == nil {
			return nil // it is stored
		}
		if sent {
			changed = nil
		} else {
			done = nil
		}
		select {
		case err = <-done:
			if err == nil || err.Class == Fatal {
				return err
			}
			backoff.Pause(ctx, max(wait.Next(), err.RetryAfter))
		case <-changed:
		case <-s.gone:
			if s.err != nil {
				return s.err
			}
			return errClosed("the subscription")
		case <-s.ctx.Done():
			return errClosed("the subscription")
		case <-ctx.Done():
			return ended(ctx, Unknown, "commit %s", s.name)
		}
	}
}

// keepStoring stores how far the reader has got, each second.
func (s *Subscription) keepStoring() {
	t := time.NewTicker(storeEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_, _ = s.commits.send(s.stands(true), nil) // what stands in the way may be gone in a second
		case <-s.gone:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// storeLast stores how far the reader has got when the subscription is closed, if there is a connection.
func (s *Subscription) storeLast() {
	if s.cfg.durable == "" || s.cfg.manualCommit || s.ctx.Err() != nil {
		return
	}
	s.commits.mu.Lock()
	up := s.commits.stream != nil
	s.commits.mu.Unlock()
	if !up {
		return
	}
	s.inbox.discard()
	ctx, cancel := context.WithTimeout(s.ctx, storeAtClose)
	defer cancel()
	if err := s.store(ctx, s.stands(true)); err != nil {
		s.c.cfg.logger.Debug("the last position was not stored", "stream", s.name, "error", err)
	}
}

// closeDurable lets every durable subscription store where its reader is, all at once, before everything ends.
func (c *Client) closeDurable() {
	var all sync.WaitGroup
	for _, s := range c.liveSubscriptions() {
		all.Go(s.storeLast)
	}
	all.Wait()
}

// orNil keeps a nil *Error from becoming an error that is not nil.
func orNil(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}
