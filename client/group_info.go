// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// GroupInfo says how a group stands, over all shards, at the moment when each is asked. Of the messages that its counting began
// with, Waiting, InFlight and Dead are what has not come to an end, and Totals what has.
type GroupInfo struct {
	Name string
	// ID is random and never used again; Resets counts how often the group began again.
	ID      uint64
	Resets  uint32
	Created time.Time
	Config  GroupConfig
	Paused  bool
	// Ready are handed out when somebody asks, Delayed when they are due, InFlight are with consumers, Dead are dead letters.
	Ready, Delayed, InFlight, Dead uint64
	// Exact: Ready and Delayed were counted; otherwise they are estimates.
	Exact bool
	// Oldest is when the oldest was stored that is neither settled nor dead, whatever it waits for; zero when none is.
	Oldest    time.Time
	Totals    GroupTotals
	Consumers []GroupConsumer // told by Group.Info only
	Shards    []GroupShard
}

// GroupTotals counts what has come to an end since the group began, or began again.
type GroupTotals struct {
	Acked, Expired, Cancelled uint64
	// Lost were removed, by age, size or trim, before the group settled them.
	Lost uint64
	// DeadLettered counts messages that ever became dead letters, Redriven and Discarded what became of those.
	DeadLettered, Redriven, Discarded uint64
	// FailedAttempts are those that ended otherwise than by an ack.
	FailedAttempts uint64
}

// GroupConsumer is a consumer of a group.
type GroupConsumer struct {
	Name     string
	InFlight int
	// Room: it may have more.
	Room bool
}

// GroupShard is how a group stands in one shard.
type GroupShard struct {
	Shard uint32
	// Start is the first offset of the log, Next the lowest that the group has not settled, End the one behind the last that may be
	// handed out.
	Start, Next, End               uint64
	Ready, Delayed, InFlight, Dead uint64
	// Held is why nothing is handed out although there may be consumers with room.
	Held Held
}

// Held says why a group hands out nothing in a shard.
type Held = wire.Held

// The reasons.
const (
	HeldNot         = wire.HeldNot
	HeldPaused      = wire.HeldPaused
	HeldRanges      = wire.HeldRanges
	HeldDeadLetters = wire.HeldDead
	HeldParked      = wire.HeldParked
	HeldOpening     = wire.HeldOpening
)

// infoPage is how many groups are asked for at a time.
const infoPage = 100

// InfoOption sets up Group.Info and Queue.Groups.
type InfoOption interface{ applyInfo(f *wire.GroupQuery) }

type infoOption func(f *wire.GroupQuery)

func (o infoOption) applyInfo(f *wire.GroupQuery) { o(f) }

// Counted has the backlog looked through where that is needed for Ready and Delayed to be exact. It may take a while.
func Counted() InfoOption { return infoOption(func(f *wire.GroupQuery) { f.Look = true }) }

// Info says how the group stands; ErrNotFound when there is none.
func (g *Group) Info(ctx context.Context, opts ...InfoOption) (*GroupInfo, error) {
	if err := checkGroup(g.q.name, g.name); err != nil {
		return nil, err
	}
	all, err := g.q.infos(ctx, g.name, opts)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, code.New(code.NotFound, "queue %s has no group %s", g.q.name, g.name)
	}
	return all[0], nil
}

// Groups says how every group of the queue stands, by name.
func (q *Queue) Groups(ctx context.Context, opts ...InfoOption) ([]*GroupInfo, error) {
	all, err := q.infos(ctx, "", opts)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (q *Queue) infos(ctx context.Context, group string, opts []InfoOption) ([]*GroupInfo, *Error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	r, err := q.resolve(ctx)
	if err != nil {
		return nil, err
	}
	ask := wire.GroupQuery{Log: r.info.Log, Group: group, Limit: infoPage}
	for _, o := range opts {
		o.applyInfo(&ask)
	}
	byShard := make([][]wire.GroupInfo, len(r.lanes))
	err = together(len(r.lanes), func(i int) *Error {
		own := ask
		own.Shard = uint32(i)
		for {
			var page wire.GroupInfos
			if err := q.c.caller.call(ctx, &own, &page); err != nil {
				return err
			}
			byShard[i] = append(byShard[i], page.Infos...)
			if !page.More || len(page.Infos) == 0 {
				return nil
			}
			last := page.Infos[len(page.Infos)-1].Name
			if last <= own.After {
				return code.New(code.Protocol, "groups: the page behind %q ends with %q", own.After, last)
			}
			own.After = last
		}
	})
	if err != nil {
		q.gone(r, err)
		return nil, err
	}
	all := map[string]*GroupInfo{}
	for shard, infos := range byShard {
		for i := range infos {
			x := &infos[i]
			if all[x.Name] == nil {
				all[x.Name] = &GroupInfo{Name: x.Name, ID: x.ID, Exact: true, Config: configOf(&x.Settings), Paused: x.Settings.Paused}
			}
			all[x.Name].add(uint32(shard), x)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *GroupInfo) int { return strings.Compare(a.Name, b.Name) }), nil
}

// add adds how the group stands in a shard.
func (g *GroupInfo) add(shard uint32, x *wire.GroupInfo) {
	g.Resets = max(g.Resets, x.Resets)
	if t := time.UnixMicro(x.Created); g.Created.IsZero() || t.Before(g.Created) {
		g.Created = t
	}
	g.Ready += x.Ready
	g.Delayed += x.Delayed
	g.InFlight += x.InFlight
	g.Dead += x.Dead
	g.Exact = g.Exact && x.Exact
	if t := time.UnixMicro(x.OldestAppend); x.OldestAppend != 0 && (g.Oldest.IsZero() || t.Before(g.Oldest)) {
		g.Oldest = t
	}
	t := &g.Totals
	t.Acked += x.Totals.Acked
	t.Expired += x.Totals.Expired
	t.Cancelled += x.Totals.Cancelled
	t.Lost += x.Totals.Lost
	t.DeadLettered += x.Totals.Dead
	t.Redriven += x.Totals.Redriven
	t.Discarded += x.Totals.Discarded
	t.FailedAttempts += x.Totals.Attempts
	for _, c := range x.Consumers {
		i := slices.IndexFunc(g.Consumers, func(o GroupConsumer) bool { return o.Name == c.Name && c.Name != "" })
		if i < 0 {
			g.Consumers = append(g.Consumers, GroupConsumer{c.Name, int(c.InFlight), c.Credit > 0})
			continue
		}
		// The room is the lane's, over all shards; what is out is the shard's.
		g.Consumers[i].InFlight += int(c.InFlight)
		g.Consumers[i].Room = g.Consumers[i].Room || c.Credit > 0
	}
	slices.SortStableFunc(g.Consumers, func(a, b GroupConsumer) int { return cmp.Compare(a.Name, b.Name) })
	g.Shards = append(g.Shards, GroupShard{
		Shard: shard, Start: x.Start, Next: x.Next, End: x.End, Ready: x.Ready, Delayed: x.Delayed, InFlight: x.InFlight, Dead: x.Dead,
		Held: x.Held,
	})
}
