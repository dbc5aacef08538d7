// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// Group is a group of a log: no order, no priorities, no time to live.
type Group struct {
	ID       uint64
	Name     string
	Settings batch.GroupSettings
	Shards   []*GroupShard
	deleted  int // shards that were told so
}

// GroupShard is where a group stands in one shard.
type GroupShard struct {
	s      *Shard
	Resets uint32
	fresh  uint64 // not handed out yet, from here on
	again  []uint64
	handed uint64
	// By offset.
	out      map[uint64]*claim
	Settled  map[uint64]bool
	Attempts map[uint64]uint32
	due      map[uint64]time.Time
	Dead     map[uint64]string
}

type claim struct {
	lane     *consumer
	handOut  uint64
	gen      uint64
	deadline time.Time
}

// consumer is a consume lane.
type consumer struct {
	b      *Broker
	l      *Log
	g      *Group
	lane   *session.Lane
	shards []uint32
	name   string
	limit  int
	out    int
	conc   uint32
	begun  map[uint32]uint64
	gone   bool
	left   bool // orderly
	frames []byte
}

// group returns a group of a log, nil when there is none. Called with mu held.
func (b *Broker) group(l *Log, name string) *Group { return b.groups[l.ID][name] }

// Group returns a group, making it when it is not there.
func (b *Broker) Group(l *Log, name string) *Group {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.makeGroup(l, name)
}

func (b *Broker) makeGroup(l *Log, name string) *Group {
	if g := b.group(l, name); g != nil {
		return g
	}
	b.lastGroup++
	g := &Group{ID: b.lastGroup, Name: name, Settings: batch.DefaultGroupSettings()}
	for _, s := range l.Shards {
		gs := &GroupShard{s: s}
		gs.reset()
		g.Shards = append(g.Shards, gs)
	}
	if b.groups == nil {
		b.groups = map[batch.LogID]map[string]*Group{}
	}
	if b.groups[l.ID] == nil {
		b.groups[l.ID] = map[string]*Group{}
	}
	b.groups[l.ID][name] = g
	return g
}

func (gs *GroupShard) reset() {
	gs.fresh, gs.again = gs.s.Earliest, nil
	gs.out, gs.Settled, gs.Attempts = map[uint64]*claim{}, map[uint64]bool{}, map[uint64]uint32{}
	gs.due, gs.Dead = map[uint64]time.Time{}, map[uint64]string{}
}

// consume serves a consume lane, whose first frame has come.
func (b *Broker) consume(r *running, lane *session.Lane, h wire.Header, body []byte) {
	var f wire.Consume
	err := f.Parse(body)
	b.mu.Lock()
	b.consumes = append(b.consumes, f)
	hook := b.script.Consume
	b.mu.Unlock()
	if err == nil && hook != nil {
		err = hook(&f)
	}
	var k *consumer
	var ok *wire.Consumed
	if err == nil {
		k, ok, err = b.joinGroup(lane, &f)
	}
	if err != nil {
		_ = lane.SendFrame(h.Corr, wire.NewError(err))
		return
	}
	if lane.Write(wire.AppendFrame(nil, h.Corr, ok)) != nil {
		return
	}
	r.wg.Go(func() {
		for {
			h, body, err := read(lane)
			if err != nil {
				b.Change(func() { k.gone = true })
				return
			}
			k.take(h, body)
		}
	})
	b.mu.Lock()
	for {
		k.collect()
		if k.gone || r.ctx.Err() != nil {
			break
		}
		if len(k.frames) == 0 {
			b.changed.Wait()
			continue
		}
		out := k.frames
		k.frames = nil
		b.mu.Unlock()
		err := lane.Write(out)
		b.mu.Lock()
		if err != nil {
			break
		}
	}
	k.giveBack()
	b.changed.Broadcast()
	b.mu.Unlock()
}

func (b *Broker) joinGroup(lane *session.Lane, f *wire.Consume) (*consumer, *wire.Consumed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	if l == nil {
		return nil, nil, code.New(code.Deleted, "log %s", f.Log)
	}
	g := b.group(l, f.Group)
	if g == nil {
		return nil, nil, code.New(code.NotFound, "no group %s", f.Group)
	}
	k := &consumer{
		b: b, l: l, g: g, lane: lane, shards: slices.Clone(f.Shards), name: f.Consumer, limit: int(f.MaxInFlight), conc: f.Concurrency,
		begun: map[uint32]uint64{},
	}
	ok := &wire.Consumed{GroupID: g.ID, AckWaitUs: g.Settings.AckWait}
	for _, s := range f.Shards {
		ok.Shards = append(ok.Shards, wire.Consuming{Shard: s, Generation: l.Shards[s].Generation, Resets: g.Shards[s].Resets})
	}
	b.lanes = append(b.lanes, k)
	return k, ok, nil
}

// collect hands out what the lane has credit for. Called with mu held.
func (k *consumer) collect() {
	now := time.Now()
	for _, id := range k.shards {
		gs := k.g.Shards[id]
		gs.timeouts(now)
		for k.out < k.limit && !k.left && !k.g.Settings.Paused && len(k.frames) < 256<<10 {
			if !k.handAgain(id, gs, now) && !k.handFresh(id, gs, now) {
				break
			}
		}
	}
}

func (gs *GroupShard) timeouts(now time.Time) {
	for offset, c := range gs.out {
		if now.After(c.deadline) {
			gs.take(offset, true)
		}
	}
}

// take takes a claim back.
func (gs *GroupShard) take(offset uint64, counted bool) {
	c := gs.out[offset]
	delete(gs.out, offset)
	c.lane.out--
	if counted {
		gs.Attempts[offset]++
	}
	gs.again = append(gs.again, offset)
}

func (k *consumer) handAgain(id uint32, gs *GroupShard, now time.Time) bool {
	for i, offset := range gs.again {
		if due := gs.due[offset]; due.After(now) {
			time.AfterFunc(due.Sub(now)+time.Millisecond, k.b.wake)
			continue
		}
		gs.again = slices.Delete(gs.again, i, i+1)
		bt := gs.s.find(offset)
		if bt == nil || gs.Settled[offset] {
			return true
		}
		k.hand(id, gs, bt, []int{int(offset - bt.BaseOffset())}, now)
		return true
	}
	return false
}

func (s *Shard) find(offset uint64) batch.Batch {
	i, ok := slices.BinarySearchFunc(s.Batches, offset, func(b batch.Batch, o uint64) int {
		switch {
		case b.NextOffset() <= o:
			return -1
		case b.BaseOffset() > o:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return s.Batches[i]
}

func (k *consumer) handFresh(id uint32, gs *GroupShard, now time.Time) bool {
	bt := gs.s.find(gs.fresh)
	if bt == nil {
		return false
	}
	var keep []int
	for ; gs.fresh < bt.NextOffset() && len(keep) < k.limit-k.out; gs.fresh++ {
		if !gs.Settled[gs.fresh] {
			keep = append(keep, int(gs.fresh-bt.BaseOffset()))
		}
	}
	if len(keep) > 0 {
		k.hand(id, gs, bt, keep, now)
	}
	return true
}

// hand hands out records of a batch, the whole of it when these are all.
func (k *consumer) hand(id uint32, gs *GroupShard, bt batch.Batch, keep []int, now time.Time) {
	f := &wire.Messages{Shard: id, Generation: gs.s.Generation, Resets: gs.Resets, HandOut: gs.handed + 1, Batch: bt}
	wait := time.Duration(k.g.Settings.AckWait) * time.Microsecond
	for i, at := range keep {
		offset := bt.BaseOffset() + uint64(at)
		gs.handed++
		gs.out[offset] = &claim{lane: k, handOut: gs.handed, gen: gs.s.Generation, deadline: now.Add(wait)}
		if n := gs.Attempts[offset]; n > 0 {
			f.Attempts = append(f.Attempts, wire.MessageAttempt{Index: uint32(i), Attempt: n + 1})
		}
	}
	k.out += len(keep)
	time.AfterFunc(wait+time.Millisecond, k.b.wake)
	if len(keep) < bt.Count() {
		s, err := batch.BuildSlice(bt, keep)
		if err != nil {
			k.b.tb.Error(err)
		}
		f.Slice, f.Batch = true, s
	}
	k.frames = wire.AppendFrame(k.frames, 0, f)
}

// giveBack takes back everything that is out on the lane.
func (k *consumer) giveBack() {
	k.gone = true
	for id, gs := range k.g.Shards {
		var out []uint64
		for offset, c := range gs.out {
			if c.lane == k {
				out = append(out, offset)
			}
		}
		slices.SortFunc(out, func(a, b uint64) int { return int(gs.out[a].handOut) - int(gs.out[b].handOut) })
		for i, offset := range out {
			gs.take(offset, !k.left && (gs.out[offset].handOut <= k.begun[uint32(id)] || i < int(k.conc)))
		}
		slices.Sort(gs.again)
	}
}

// EndShard ends a shard of every consume lane.
func (b *Broker) EndShard(shard uint32, c code.Code) {
	b.Change(func() {
		for _, k := range b.lanes {
			if i := slices.Index(k.shards, shard); i >= 0 && !k.gone {
				k.shards = slices.Delete(slices.Clone(k.shards), i, i+1)
				gs := k.g.Shards[shard]
				for offset, claim := range gs.out {
					if claim.lane == k {
						gs.take(offset, false)
					}
				}
				k.frames = wire.AppendFrame(k.frames, 0, &wire.ConsumeEnd{Shard: shard, Code: c, Message: "the test says so"})
			}
		}
	})
}

// Consumes returns every consume lane that was asked for.
func (b *Broker) Consumes() []wire.Consume {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.consumes)
}

// Settles returns every settlement that arrived, Flows every note, Extends every extension.
func (b *Broker) Settles() []wire.Settle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.settles)
}

// Flows returns every note that arrived.
func (b *Broker) Flows() []wire.Flow {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.flows)
}

// Extends returns every extension that arrived.
func (b *Broker) Extends() []wire.Extend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.extends)
}
