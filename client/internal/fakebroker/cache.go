// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// values is what the shard's batches come to by key, now.
func (s *Shard) values() map[string]wire.Entry {
	out := map[string]wire.Entry{}
	now := time.Now().UnixMicro()
	for _, bt := range s.Batches {
		r := bt.Records()
		var rec batch.Record
		for {
			if ok, err := r.Next(&rec); err != nil || !ok {
				break
			}
			e := entryOf(bt, r.Offset(), &rec)
			if e.Kind != wire.EntryValue || e.Expires != 0 && e.Expires <= now {
				delete(out, string(rec.Key))
				continue
			}
			out[string(rec.Key)] = e
		}
	}
	return out
}

func entryOf(bt batch.Batch, offset uint64, rec *batch.Record) wire.Entry {
	e := wire.Entry{
		Kind: wire.EntryValue, Key: rec.Key, Offset: offset, Generation: bt.Generation(), AppendTime: bt.AppendTime(), Value: rec.Value,
		Headers: batch.AppendHeaders(nil, rec.Headers),
	}
	if rec.TTL > 0 {
		e.Expires = bt.AppendTime() + rec.TTL.Microseconds()
	}
	switch {
	case rec.Value != nil:
	case bt.IsExpired():
		e.Kind, e.Headers = wire.EntryExpired, nil
	default:
		e.Kind = wire.EntryDeleted
	}
	return e
}

// ask serves the requests of caches that are no watch; ok is false for others.
func (b *Broker) ask(lane *session.Lane, h wire.Header, body []byte) (ok bool) {
	var answer wire.Frame
	var err error
	switch h.Type {
	case wire.TypeGet:
		var f wire.Get
		if err = f.Parse(body); err == nil {
			answer, err = b.get(&f)
		}
	case wire.TypeList:
		var f wire.List
		if err = f.Parse(body); err == nil {
			answer = b.list(&f)
		}
	case wire.TypeCount:
		var f wire.Count
		if err = f.Parse(body); err == nil {
			answer = b.count(&f)
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

func (b *Broker) get(f *wire.Get) (*wire.Got, error) {
	b.mu.Lock()
	b.gets = append(b.gets, len(f.Keys))
	hook := b.script.Get
	b.mu.Unlock()
	if hook != nil {
		if err := hook(f); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	if l == nil {
		return nil, code.New(code.Deleted, "log %s", f.Log)
	}
	s := l.Shards[f.Shard]
	now := s.values()
	got := &wire.Got{Shard: f.Shard, Generation: s.Generation, AsOf: s.next}
	for i, key := range f.Keys {
		if most := b.script.MaxEntries; most > 0 && i == most {
			break
		}
		got.Entries = append(got.Entries, now[string(key)])
	}
	return got, nil
}

func (b *Broker) list(f *wire.List) *wire.Listed {
	if hook := b.current().List; hook != nil {
		hook()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byID[f.Log].Shards[f.Shard]
	now := s.values()
	ok := &wire.Listed{Shard: f.Shard, Generation: s.Generation, AsOf: s.next}
	limit := int(f.Limit)
	if most := b.script.MaxEntries; most > 0 {
		limit = most
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		e := now[key]
		if !f.Filter.Matches(e.Key) || f.HasAfter && key <= f.After {
			continue
		}
		if len(ok.Entries) == limit {
			ok.More, ok.Next = true, string(ok.Entries[limit-1].Key)
			break
		}
		if f.KeysOnly {
			e.Kind, e.Value, e.Headers = wire.EntryKey, nil, nil
		}
		ok.Entries = append(ok.Entries, e)
	}
	return ok
}

func (b *Broker) count(f *wire.Count) *wire.Counted {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byID[f.Log].Shards[f.Shard]
	ok := &wire.Counted{Shard: f.Shard, Generation: s.Generation, AsOf: s.next}
	for _, e := range s.values() {
		if f.Filter.Matches(e.Key) {
			ok.Count++
		}
	}
	return ok
}

// Gets returns how many keys each Get had.
func (b *Broker) Gets() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.gets)
}

// derive makes the records that the leader is to make, as a batch of its own with the producer's names.
func (s *Shard) derive(f *wire.Publish, bt batch.Batch) (batch.Batch, []int64, error) {
	now := s.values()
	var sums []int64
	bld := batch.NewBuilder(batch.Limits{})
	derives := f.Derives
	r := bt.Records()
	for i := 0; ; i++ {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			made, err := bld.Build(bt.ProducerID(), bt.ProducerSequence(), batch.None)
			return made, sums, err
		}
		if len(derives) > 0 && derives[0].Record == uint32(i) {
			e, there := now[string(rec.Key)]
			if derives[0].Op == wire.OpTouch {
				if !there {
					return nil, nil, code.New(code.NotFound, "no key %q", rec.Key).With(code.DetailIndex, uint64(i))
				}
				rec.Value = e.Value
			} else {
				was, err := strconv.ParseInt(string(e.Value), 10, 64)
				if there && err != nil {
					return nil, nil, code.New(code.NotANumber, "%q", e.Value).With(code.DetailIndex, uint64(i))
				}
				delta, _ := strconv.ParseInt(string(rec.Value), 10, 64)
				sums = append(sums, was+delta)
				rec.Value = strconv.AppendInt(nil, was+delta, 10)
			}
			derives = derives[1:]
		}
		now[string(rec.Key)] = wire.Entry{Kind: wire.EntryValue, Key: rec.Key, Value: rec.Value}
		if err := bld.Add(rec); err != nil {
			return nil, nil, err
		}
	}
}
