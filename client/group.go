// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math"
	"reflect"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Group is a group of consumers of a queue, whether it is there or not: a place that they share, and what is handed out to them.
// A group is in each shard of the queue for itself, so an operation that fails may be done in some of them: repeat it, that does no
// harm.
type Group struct {
	q    *Queue
	name string
}

// Group returns the group of a name.
func (q *Queue) Group(name string) *Group { return &Group{q, name} }

// Name is the group's.
func (g *Group) Name() string { return g.name }

// Unlimited is a GroupConfig.MaxAttempts that never makes a dead letter of a message.
const Unlimited = -1

// GroupConfig is how a group works. What is zero is the default.
type GroupConfig struct {
	// AckWait is how long a consumer may hold a message without a word. Default 30 s; 100 ms to 12 h.
	AckWait time.Duration
	// MaxAttempts is how many attempts may end before the message is a dead letter. Default 10; Unlimited for any number.
	MaxAttempts int
	// Backoff are the waits before each further attempt; the last repeats. Default 100 ms, 1 s, 5 s, 30 s, 1 min; at most 16 of 1 ms
	// to 24 h.
	Backoff []time.Duration
	// OrderByKey hands out one message of a key at a time, in their order; one that waits to be tried again keeps those behind it
	// waiting. Records without a key are not ordered.
	OrderByKey bool
	// FairKeys lets keys take turns.
	FairKeys bool
	// DeadLetterExpired makes dead letters of messages whose TTL ends, instead of settling them.
	DeadLetterExpired bool
	// PriorityAge is how long a message waits for those of higher priority, at most. Default 1 min; up to 24 h.
	PriorityAge time.Duration
	// MaxDeadLetters is how many there may be before the group hands out nothing more. Default 10,000; 1 to 100,000.
	MaxDeadLetters int
	// From is where a new group begins: by default with the earliest message that is there.
	From Place
}

// Place is where a group begins or goes on: the zero value for where it would by itself.
type Place struct {
	shards []uint32 // none: all of them
	at     wire.Position
}

// PlaceEarliest is before the first message that is there, PlaceLatest behind the last.
func PlaceEarliest() Place { return Place{at: wire.Position{Kind: wire.PositionEarliest}} }

// PlaceLatest is behind the last message that is there.
func PlaceLatest() Place { return Place{at: wire.Position{Kind: wire.PositionLatest}} }

// PlaceOffset is before one message of one shard; the others stay where they are.
func PlaceOffset(shard uint32, offset uint64) Place {
	return Place{shards: []uint32{shard}, at: wire.Position{Kind: wire.PositionOffset, Offset: offset}}
}

// PlaceTime is before the first message that was appended at t or later, by the broker's clock.
func PlaceTime(t time.Time) Place {
	return Place{at: wire.Position{Kind: wire.PositionTime, Time: t.UnixMicro()}}
}

// settings are what the wire says of the configuration.
func (c *GroupConfig) settings() (batch.GroupSettings, *Error) {
	s := batch.DefaultGroupSettings()
	var faults []error
	us := func(what string, d time.Duration, into *uint64) {
		if d < 0 {
			faults = append(faults, code.New(code.BadRequest, "%s of %v is negative", what, d))
		} else if d > 0 {
			*into = uint64((d + time.Microsecond - 1) / time.Microsecond)
		}
	}
	us("AckWait", c.AckWait, &s.AckWait)
	us("PriorityAge", c.PriorityAge, &s.PriorityAge)
	if len(c.Backoff) > 0 {
		s.Backoff = make([]uint64, len(c.Backoff))
		for i, d := range c.Backoff {
			us("Backoff", d, &s.Backoff[i])
		}
	}
	switch n := c.MaxAttempts; {
	case n == Unlimited:
		s.MaxAttempts = 0
	case n > 0 && int64(n) <= math.MaxUint32:
		s.MaxAttempts = uint32(n)
	case n != 0:
		faults = append(faults, code.New(code.BadRequest, "MaxAttempts of %d: want 1 and more, or Unlimited", n))
	}
	switch n := c.MaxDeadLetters; {
	case n > 0 && n <= batch.MaxDead:
		s.MaxDead = uint32(n)
	case n != 0:
		faults = append(faults, code.New(code.BadRequest, "MaxDeadLetters of %d: want 1 to %d", n, batch.MaxDead))
	}
	s.OrderByKey, s.FairKeys, s.DeadExpired = c.OrderByKey, c.FairKeys, c.DeadLetterExpired
	if err := errors.Join(append(faults, s.Validate())...); err != nil {
		return s, code.New(code.BadRequest, "group settings: %w", err)
	}
	return s, nil
}

// configOf is the configuration that settings come to; nothing in it is zero for the default.
func configOf(s *batch.GroupSettings) GroupConfig {
	c := GroupConfig{
		AckWait: micros(s.AckWait), MaxAttempts: int(s.MaxAttempts), OrderByKey: s.OrderByKey, FairKeys: s.FairKeys,
		DeadLetterExpired: s.DeadExpired, PriorityAge: micros(s.PriorityAge), MaxDeadLetters: int(s.MaxDead),
	}
	if s.MaxAttempts == 0 {
		c.MaxAttempts = Unlimited
	}
	for _, us := range s.Backoff {
		c.Backoff = append(c.Backoff, micros(us))
	}
	return c
}

func micros(us uint64) time.Duration {
	return time.Duration(min(us, uint64(math.MaxInt64/int64(time.Microsecond)))) * time.Microsecond
}

// Ensure makes the group, or checks that the one there has these settings. It changes none: other settings are ErrConflict, and
// Update changes them. Its place is not looked at. It also completes a group that an earlier call made in some shards only.
func (g *Group) Ensure(ctx context.Context, cfg GroupConfig) error {
	if err := g.create(ctx, &cfg); err != nil {
		return err
	}
	info, err := g.Info(ctx)
	if err != nil {
		return err
	}
	want, _ := cfg.settings() // create has looked at them
	if have := info.Config; !reflect.DeepEqual(have, configOf(&want)) {
		return code.New(code.Conflict, "group %s of %s is there with other settings: %+v", g.name, g.q.name, have)
	}
	return nil
}

// create makes the group in the first shard, whose answer says which id holds, then in the others.
func (g *Group) create(ctx context.Context, cfg *GroupConfig) *Error {
	settings, err := cfg.settings()
	if err != nil {
		return err
	}
	cmd, err := g.begin(ctx, wire.GroupCreate, cfg.From.shards)
	if err != nil {
		return err
	}
	defer cmd.cancel()
	if len(cfg.From.shards) > 0 && len(cmd.r.lanes) > 1 {
		return code.New(code.BadRequest, "group %s of %s: it cannot begin at an offset, as the queue has %d shards", g.name, g.q.name, len(cmd.r.lanes))
	}
	f := wire.GroupCommand{Op: wire.GroupCreate, HasSettings: true, Settings: settings, Position: cfg.From.at}
	first, err := cmd.ask(0, &f)
	if err != nil {
		return err
	}
	f.GroupID = first.GroupID
	return together(len(cmd.r.lanes)-1, func(i int) *Error {
		done, err := cmd.ask(uint32(i+1), &f)
		if err == nil && done.GroupID != f.GroupID {
			err = code.New(code.Conflict, "group %s of %s: shard %d has another group of that name", g.name, g.q.name, i+1)
		}
		return err
	})
}

// Update changes the settings to those of cfg, defaults included; its From is not looked at.
func (g *Group) Update(ctx context.Context, cfg GroupConfig) error {
	settings, err := cfg.settings()
	if err != nil {
		return err
	}
	_, err = g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupUpdate, HasSettings: true, Settings: settings})
	return orNil(err)
}

// Pause lets the group hand out nothing until Resume. What is out can be settled.
func (g *Group) Pause(ctx context.Context) error {
	_, err := g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupPause})
	return orNil(err)
}

// Resume lets the group hand out again.
func (g *Group) Resume(ctx context.Context) error {
	_, err := g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupResume})
	return orNil(err)
}

// Seek lets the group go on at a place: what lies before it counts as done, what lies behind is handed out, also what was settled
// before. Claims of what is out end; dead letters behind the place are forgotten.
func (g *Group) Seek(ctx context.Context, to Place) error {
	if to.at.Kind == wire.PositionNone {
		return code.New(code.BadRequest, "seek group %s of %s: no place", g.name, g.q.name)
	}
	_, err := g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupSeek, Position: to.at}, to.shards...)
	return orNil(err)
}

// Reset lets the group begin again with the earliest message that is there. Attempts, dead letters and counts are forgotten.
func (g *Group) Reset(ctx context.Context) error {
	_, err := g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupReset})
	return orNil(err)
}

// Delete removes the group with all that it knows; its consumers end with ErrDeleted. ErrNotFound when there is none, also when an
// earlier call whose answer was lost has deleted it.
func (g *Group) Delete(ctx context.Context) error {
	_, err := g.everywhere(ctx, &wire.GroupCommand{Op: wire.GroupDelete})
	return orNil(err)
}

// RedriveOptions say which dead letters are handed out again, and how fast.
type RedriveOptions struct {
	// Messages that are meant; none for all that there are.
	Messages []MessageID
	// Rate is how many a second, over all shards; 0 for all at once.
	Rate int
}

// Redrive hands out dead letters again, their attempts counted from the beginning, and returns how many.
func (g *Group) Redrive(ctx context.Context, o RedriveOptions) (uint64, error) {
	if o.Rate < 0 || int64(o.Rate) > math.MaxUint32 {
		return 0, code.New(code.BadRequest, "redrive group %s of %s: a rate of %d a second", g.name, g.q.name, o.Rate)
	}
	n, err := g.ofMessages(ctx, &wire.GroupCommand{Op: wire.GroupRedrive}, o.Messages, true, uint32(o.Rate))
	return n, orNil(err)
}

// Discard settles dead letters, all that there are when none are named, and returns how many.
func (g *Group) Discard(ctx context.Context, messages ...MessageID) (uint64, error) {
	n, err := g.ofMessages(ctx, &wire.GroupCommand{Op: wire.GroupDiscard}, messages, true, 0)
	return n, orNil(err)
}

// Cancel settles messages that are not out, for this group, and returns how many.
func (g *Group) Cancel(ctx context.Context, messages ...MessageID) (uint64, error) {
	n, err := g.ofMessages(ctx, &wire.GroupCommand{Op: wire.GroupCancel}, messages, false, 0)
	return n, orNil(err)
}

// Reschedule moves when messages that are not out are due, for this group, and returns how many there were.
func (g *Group) Reschedule(ctx context.Context, due time.Time, messages ...MessageID) (uint64, error) {
	n, err := g.ofMessages(ctx, &wire.GroupCommand{Op: wire.GroupReschedule, AtUs: due.UnixMicro()}, messages, false, 0)
	return n, orNil(err)
}

// Cancel settles messages that are not out, for every group, and returns for how many messages and groups.
func (q *Queue) Cancel(ctx context.Context, messages ...MessageID) (uint64, error) {
	return (&Group{q: q}).Cancel(ctx, messages...)
}

// Reschedule moves when messages that are not out are due, for every group, and returns for how many messages and groups.
func (q *Queue) Reschedule(ctx context.Context, due time.Time, messages ...MessageID) (uint64, error) {
	return (&Group{q: q}).Reschedule(ctx, due, messages...)
}

// command is one operation, over all the shards that it takes.
type command struct {
	g      *Group
	r      *route
	ctx    context.Context //nolint:containedctx // as long as the operation
	cancel context.CancelFunc
	id     [16]byte
}

// begin resolves the queue and draws an id, under which each shard carries the operation out once, however often it is asked.
func (g *Group) begin(ctx context.Context, op wire.GroupOp, shards []uint32) (*command, *Error) {
	if g.name != "" || op != wire.GroupCancel && op != wire.GroupReschedule {
		if err := checkGroup(g.q.name, g.name); err != nil {
			return nil, err
		}
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	r, err := g.q.resolve(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	for _, s := range shards {
		if int64(s) >= int64(len(r.lanes)) {
			cancel()
			return nil, code.New(code.NotFound, "queue %s has no shard %d", g.q.name, s)
		}
	}
	c := &command{g: g, r: r, ctx: ctx, cancel: cancel}
	_, _ = crand.Read(c.id[:]) // never fails: the runtime ends the process when the system has no randomness
	return c, nil
}

// ask has one shard do it.
func (c *command) ask(shard uint32, f *wire.GroupCommand) (*wire.GroupDone, *Error) {
	own := *f
	own.ID, own.Log, own.Group, own.Shard = c.id, c.r.info.Log, c.g.name, shard
	done := &wire.GroupDone{}
	if err := c.g.q.c.caller.call(c.ctx, &own, done); err != nil {
		c.g.q.gone(c.r, err)
		if err.Class != Fatal {
			err.Class = Unknown // an earlier try may have got through
		}
		return nil, err
	}
	return done, nil
}

// everywhere has every shard do it, or those that are named, and returns how many messages it was about.
func (g *Group) everywhere(ctx context.Context, f *wire.GroupCommand, shards ...uint32) (uint64, *Error) {
	c, err := g.begin(ctx, f.Op, shards)
	if err != nil {
		return 0, err
	}
	defer c.cancel()
	if len(shards) == 0 {
		for s := range c.r.lanes {
			shards = append(shards, uint32(s))
		}
	}
	counts := make([]uint64, len(shards))
	err = together(len(shards), func(i int) *Error {
		own := *f
		if f.Rate > 0 {
			own.Rate = max(f.Rate/uint32(len(shards)), 1)
		}
		done, err := c.ask(shards[i], &own)
		if err == nil {
			counts[i] = done.Count
		}
		return err
	})
	return sum(counts), err
}

// ofMessages has the shards of messages do it, in as many commands as they need.
func (g *Group) ofMessages(ctx context.Context, f *wire.GroupCommand, ids []MessageID, all bool, rate uint32) (uint64, *Error) {
	f.Rate = rate
	if len(ids) == 0 {
		if !all {
			return 0, code.New(code.BadRequest, "queue %s: no messages are named", g.q.name)
		}
		return g.everywhere(ctx, f)
	}
	var order []uint32
	offsets := map[uint32][]uint64{}
	for _, id := range ids {
		if offsets[id.Shard] == nil {
			order = append(order, id.Shard)
		}
		offsets[id.Shard] = append(offsets[id.Shard], id.Offset)
	}
	if rate > 0 {
		f.Rate = max(rate/uint32(len(order)), 1)
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	counts := make([]uint64, len(order))
	err := together(len(order), func(i int) *Error {
		rest := offsets[order[i]]
		for len(rest) > 0 {
			c, err := g.begin(ctx, f.Op, order[i:i+1])
			if err != nil {
				return err
			}
			own := *f
			own.Offsets = rest[:min(len(rest), wire.MaxCommandOffsets)]
			done, err := c.ask(order[i], &own)
			c.cancel()
			if err != nil {
				return err
			}
			counts[i] += done.Count
			rest = rest[len(own.Offsets):]
		}
		return nil
	})
	return sum(counts), err
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
