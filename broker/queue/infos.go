// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"math"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	lookWithin = 2 * time.Second       // that a backlog is looked through for an answer
	lookAgain  = 10 * time.Millisecond // until it is asked again whether it has been
)

// Infos answers how the groups of a shard stand. With Look it waits a while for the numbers to be exact.
func Infos(ctx context.Context, s Shard, f *wire.GroupQuery) (*wire.GroupInfos, error) {
	until := time.Now().Add(lookWithin)
	for {
		out, err := infos(ctx, s, f)
		if err != nil || !f.Look || exact(out) || time.Now().After(until) {
			return out, err
		}
		t := time.NewTimer(lookAgain)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func exact(f *wire.GroupInfos) bool {
	for i := range f.Infos {
		if !f.Infos[i].Exact {
			return false
		}
	}
	return true
}

// infos asks once. Who consumes is told for one group only: there may be thousands in each.
func infos(ctx context.Context, s Shard, f *wire.GroupQuery) (*wire.GroupInfos, error) {
	out := &wire.GroupInfos{Shard: f.Shard, Generation: s.View().Generation}
	var list []group.Info
	err := inspect(ctx, s, func(v *group.View) {
		if f.Group != "" {
			if f.Look {
				v.Look(f.Group)
			}
			if x, ok := v.Info(f.Group); ok {
				list = append(list, x)
			}
			return
		}
		list = v.Infos(f.After, int(f.Limit)+1, false)
		for i := range list[:min(len(list), int(f.Limit))] {
			if f.Look {
				v.Look(list[i].Name)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if f.Group != "" && len(list) == 0 {
		return nil, code.New(code.NotFound, "the log has no group %q", f.Group)
	}
	size := 0
	for i := range list {
		one := wire.GroupInfos{Infos: []wire.GroupInfo{infoOf(&list[i])}}
		one.Infos[0].OldestAppend = Oldest(s, &list[i])
		if size += one.Size(); i > 0 && (i == int(f.Limit) || size > browseBytes) {
			out.More = true
			break
		}
		out.Infos = append(out.Infos, one.Infos[0])
	}
	return out, nil
}

func infoOf(x *group.Info) wire.GroupInfo {
	out := wire.GroupInfo{
		ID: x.ID, Name: x.Name, Resets: x.Resets, Settings: x.Settings, Totals: x.Totals, Created: x.Created,
		Start: x.Start, Next: x.Next, End: x.End, Ready: x.Ready, InFlight: x.InFlight, Delayed: x.Delayed, Dead: x.Dead, Ranges: x.Ranges,
		Held: wire.Held(x.Held), Exact: x.Exact,
	}
	for _, c := range x.Consumers {
		w := wire.ConsumerInfo{Name: c.Name, InFlight: uint32(min(c.InFlight, math.MaxUint32))}
		if !c.Starved {
			w.Credit = 1 // how much it may have is its lane's, over all its shards
		}
		out.Consumers = append(out.Consumers, w)
	}
	return out
}

// Oldest is when the oldest message that a group has not settled was appended (us); 0 when there is none, or nobody knows.
func Oldest(s Shard, x *group.Info) int64 {
	if x.Next >= x.End {
		return 0
	}
	var l last
	b, _, err := l.find(s, x.Next, 0)
	if err != nil || !has(b, x.Next) {
		return 0 // it was carried, or is gone already
	}
	return b.AppendTime()
}

// Messages reads what a group has to know of these messages. One that is not in the log any more is left out.
func Messages(ctx context.Context, s Shard, offsets []uint64) ([]group.Message, error) {
	places := make([]uint64, len(offsets))
	err := inspect(ctx, s, func(v *group.View) {
		for i, o := range offsets {
			places[i] = v.Place(o)
		}
	})
	if err != nil {
		return nil, err
	}
	var l last
	out := make([]group.Message, 0, len(offsets))
	for i, o := range offsets {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		x, _, err := l.find(s, o, places[i])
		switch {
		case errors.Is(err, storage.ErrDropped), errors.Is(err, storage.ErrOutOfRange):
			continue
		case err != nil:
			return nil, host.ReadError(err)
		}
		if m, ok := messageAt(x, o); ok {
			out = append(out, m)
		}
	}
	return out, nil
}

func messageAt(x *host.Shared, offset uint64) (group.Message, bool) {
	var m batch.Meta
	for metas := x.Metas(); ; {
		ok, err := metas.Next(&m)
		if err != nil || !ok {
			return group.Message{}, false
		}
		if metas.Offset() == offset {
			return group.MessageOf(&m, offset, metas.AppendTime()), true
		}
	}
}
