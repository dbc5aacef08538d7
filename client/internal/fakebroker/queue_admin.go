// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"maps"
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// askQueue serves the requests about groups; ok is false for others.
func (b *Broker) askQueue(lane *session.Lane, h wire.Header, body []byte) (ok bool) {
	var answer wire.Frame
	var err error
	switch h.Type {
	case wire.TypeGroupCommand:
		var f wire.GroupCommand
		if err = wire.ParseFrame(h, &f, body); err == nil {
			answer, err = b.command(&f)
		}
	case wire.TypeGroupQuery:
		var f wire.GroupQuery
		if err = f.Parse(body); err == nil {
			answer, err = b.query(&f)
		}
	case wire.TypeBrowse:
		var f wire.Browse
		if err = wire.ParseFrame(h, &f, body); err == nil {
			answer = b.browse(&f)
		}
	default:
		return false
	}
	if err != nil {
		answer = wire.NewError(err)
	}
	_ = lane.SendFrame(h.Corr, answer)
	return true
}

func (b *Broker) command(f *wire.GroupCommand) (*wire.GroupDone, error) {
	b.mu.Lock()
	b.commands = append(b.commands, *f)
	hook := b.script.Command
	b.mu.Unlock()
	if hook != nil {
		if err := hook(f); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.changed.Broadcast()
	l := b.byID[f.Log]
	if l == nil {
		return nil, code.New(code.Deleted, "log %s", f.Log)
	}
	g := b.group(l, f.Group)
	if f.Op == wire.GroupCreate {
		created := g == nil
		g = b.makeGroup(l, f.Group)
		if created && f.HasSettings {
			g.Settings = f.Settings
		}
		if created && f.Position.Kind == wire.PositionLatest {
			for _, gs := range g.Shards {
				gs.fresh = gs.s.next
			}
		}
		return &wire.GroupDone{GroupID: g.ID, Created: created}, nil
	}
	if f.Group == "" {
		var n uint64
		for _, g := range b.groups[l.ID] {
			n += g.Shards[f.Shard].command(f)
		}
		return &wire.GroupDone{Count: n}, nil
	}
	if g == nil {
		return nil, code.New(code.NotFound, "no group %s", f.Group)
	}
	done := &wire.GroupDone{GroupID: g.ID}
	switch f.Op {
	case wire.GroupUpdate:
		g.Settings = f.Settings
	case wire.GroupDelete:
		if g.deleted++; g.deleted == len(l.Shards) {
			delete(b.groups[l.ID], f.Group)
			for _, k := range b.lanes {
				if k.g == g && !k.gone {
					k.frames = wire.AppendFrame(k.frames, 0, &wire.ConsumeEnd{Shard: wire.AllShards, Code: code.Deleted, Message: "the group was deleted"})
				}
			}
		}
	case wire.GroupPause, wire.GroupResume:
		g.Settings.Paused = f.Op == wire.GroupPause
	default:
		done.Count = g.Shards[f.Shard].command(f)
	}
	return done, nil
}

// command does what concerns one shard, and returns how many messages that was.
func (gs *GroupShard) command(f *wire.GroupCommand) (n uint64) {
	offsets := f.Offsets
	switch f.Op { //nolint:exhaustive // the others are about the group
	case wire.GroupSeek, wire.GroupReset:
		gs.Resets++
		gs.reset()
		if f.Position.Kind == wire.PositionOffset {
			gs.fresh = f.Position.Offset
		}
	case wire.GroupRedrive, wire.GroupDiscard:
		if len(offsets) == 0 {
			offsets = slices.Sorted(maps.Keys(gs.Dead))
		}
		for _, o := range offsets {
			if _, ok := gs.Dead[o]; !ok {
				continue
			}
			n++
			delete(gs.Dead, o)
			delete(gs.Attempts, o)
			if f.Op == wire.GroupDiscard {
				gs.Settled[o] = true
			} else {
				gs.again = append(gs.again, o)
			}
		}
	case wire.GroupCancel, wire.GroupReschedule:
		for _, o := range offsets {
			if _, dead := gs.Dead[o]; gs.out[o] != nil || gs.Settled[o] || dead || o >= gs.s.next {
				continue
			}
			n++
			if f.Op == wire.GroupCancel {
				gs.Settled[o] = true
			} else if gs.due[o] = time.UnixMicro(f.AtUs); !slices.Contains(gs.again, o) {
				gs.again = append(gs.again, o)
			}
		}
	}
	return n
}

func (b *Broker) query(f *wire.GroupQuery) (*wire.GroupInfos, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	ok := &wire.GroupInfos{Shard: f.Shard}
	for _, name := range slices.Sorted(maps.Keys(b.groups[l.ID])) {
		if f.Group != "" && name != f.Group || name <= f.After {
			continue
		}
		if len(ok.Infos) == b.page(int(f.Limit)) {
			ok.More = true
			break
		}
		g := b.groups[l.ID][name]
		gs := g.Shards[f.Shard]
		x := wire.GroupInfo{
			ID: g.ID, Name: name, Resets: gs.Resets, Settings: g.Settings, Start: gs.s.Earliest, End: gs.s.next, Exact: true,
			InFlight: uint64(len(gs.out)), Dead: uint64(len(gs.Dead)), Totals: batch.GroupTotals{Acked: uint64(len(gs.Settled))},
		}
		x.Ready = x.End - x.Start - x.InFlight - x.Dead - x.Totals.Acked
		for _, k := range b.lanes {
			if k.g == g && !k.gone && slices.Contains(k.shards, f.Shard) {
				x.Consumers = append(x.Consumers, wire.ConsumerInfo{Name: k.name, InFlight: uint32(k.out), Credit: uint32(max(k.limit-k.out, 0))})
			}
		}
		ok.Infos = append(ok.Infos, x)
	}
	if f.Group != "" && len(ok.Infos) == 0 {
		return nil, code.New(code.NotFound, "no group %s", f.Group)
	}
	return ok, nil
}

// page is how much of a page is given.
func (b *Broker) page(limit int) int {
	if most := b.script.MaxEntries; most > 0 {
		return most
	}
	return limit
}

func (b *Broker) browse(f *wire.Browse) *wire.Browsed {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	s := l.Shards[f.Shard]
	ok := &wire.Browsed{Shard: f.Shard, Generation: s.Generation}
	var gs *GroupShard
	if g := b.group(l, f.Group); g != nil {
		gs = g.Shards[f.Shard]
	}
	for _, bt := range s.Batches {
		r := bt.Records()
		var rec batch.Record
		for {
			if more, err := r.Next(&rec); err != nil || !more {
				break
			}
			o := r.Offset()
			m := wire.BrowsedMessage{
				Offset: o, State: wire.MessageRecord, AppendTime: bt.AppendTime(), Generation: bt.Generation(), Priority: rec.Priority,
				Key: rec.Key, Value: rec.Value, Headers: batch.AppendHeaders(nil, rec.Headers),
			}
			if gs != nil {
				m.State, m.Attempts = gs.state(o), gs.Attempts[o]
				if m.State == wire.MessageDead {
					m.Reason, m.Error = batch.DeadRejected, gs.Dead[o]
				}
			}
			has := !f.HasHeader || slices.ContainsFunc(rec.Headers, func(h batch.Header) bool {
				return h.Key == f.Header && string(h.Value) == string(f.HeaderValue)
			})
			if m.State&f.States == 0 || f.HasAfter && o <= f.After || !has || f.Filter.Kind != wire.FilterAll && !f.Filter.Matches(rec.Key) {
				continue
			}
			if len(ok.Messages) == b.page(int(f.Limit)) {
				ok.More, ok.Next = true, ok.Messages[len(ok.Messages)-1].Offset
				return ok
			}
			ok.Messages = append(ok.Messages, m)
		}
	}
	return ok
}

func (gs *GroupShard) state(o uint64) wire.MessageState {
	_, dead := gs.Dead[o]
	switch {
	case gs.Settled[o]:
		return 0
	case dead:
		return wire.MessageDead
	case gs.out[o] != nil:
		return wire.MessageInFlight
	case gs.due[o].After(time.Now()):
		return wire.MessageDelayed
	}
	return wire.MessageReady
}

// Commands returns every command that arrived.
func (b *Broker) Commands() []wire.GroupCommand {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.commands)
}
