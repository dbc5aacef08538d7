// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of what one Browse does before it says that there is more.
const (
	browseBytes  = wire.MaxBrowseBytes - 64<<10 // of the answer
	browseRead   = 64 << 20                     // of the log
	browseWithin = 200 * time.Millisecond
	browsePage   = 1024 // messages that the core is asked about at once
)

// browser makes one answer.
type browser struct {
	s     Shard
	f     *wire.Browse
	now   int64
	until time.Time
	read  int
	bytes int
	out   *wire.Browsed

	last    last
	at      uint64 // the batch that records stands in; 0 for none
	records batch.Reader
	rec     batch.Record
}

// Browse answers with messages of a group, or records of the log, that nobody is handed by it.
func Browse(ctx context.Context, s Shard, f *wire.Browse) (*wire.Browsed, error) {
	b := &browser{
		s: s, f: f, now: s.Now(), until: time.Now().Add(browseWithin),
		out: &wire.Browsed{Shard: f.Shard, Generation: s.View().Generation, Next: f.After},
	}
	from := uint64(0)
	if f.HasAfter {
		if f.After == math.MaxUint64 {
			return b.out, nil
		}
		from = f.After + 1
	}
	walk := b.group
	if f.States == wire.MessageRecord {
		walk = b.log
	}
	if err := walk(ctx, from); err != nil {
		return nil, err
	}
	return b.out, nil
}

// spent says whether the answer has cost enough.
func (b *browser) spent() bool { return b.read >= browseRead || time.Now().After(b.until) }

var statesOf = map[wire.MessageState]group.State{
	wire.MessageReady: group.StateReady, wire.MessageDelayed: group.StateDelayed, wire.MessageInFlight: group.StateInFlight, wire.MessageDead: group.StateDead,
}

// states are those that the group is asked for: of what a record's own delay holds back it knows only that it is ready.
func (b *browser) states() (set group.States) {
	for asked, known := range statesOf {
		if b.f.States&asked != 0 {
			set |= group.StatesOf(known)
		}
	}
	if set.Has(group.StateDelayed) {
		set |= group.StatesOf(group.StateReady)
	}
	return set
}

// group goes through the messages of a group.
func (b *browser) group(ctx context.Context, from uint64) error {
	states := b.states()
	for {
		var (
			list  []group.Standing
			next  uint64
			more  bool
			found bool
		)
		err := inspect(ctx, b.s, func(v *group.View) {
			if found = v.Has(b.f.Group); found {
				list, next, more = v.Standings(b.f.Group, from, states, browsePage)
			}
		})
		switch {
		case err != nil:
			return err
		case !found:
			return code.New(code.NotFound, "the log has no group %q", b.f.Group)
		}
		for i := range list {
			st := &list[i]
			x, _, err := b.last.find(b.s, st.Offset, st.Sequence)
			if err == nil {
				var full bool
				if full, err = b.message(x, st); full {
					b.out.More = true
					return nil
				}
			}
			if err != nil && !gone(err) { // else it went since
				return host.ReadError(err)
			}
			b.out.Next = st.Offset
			if b.spent() {
				b.out.More = true
				return nil
			}
		}
		if next > from {
			b.out.Next = next - 1
		}
		if b.out.More = more; !more || b.spent() {
			return nil
		}
		from = next
	}
}

// gone says whether an error is of what retention took, or reclaim moved, or what its producer compressed beyond repair.
func gone(err error) bool {
	return errors.Is(err, storage.ErrDropped) || errors.Is(err, errMoved) || errors.Is(err, batch.ErrCompression)
}

// message adds a message of a group, if it is one that is asked for.
func (b *browser) message(x *host.Shared, st *group.Standing) (full bool, err error) {
	if err := b.seek(x, st.Offset); err != nil {
		return false, err
	}
	m := b.record(st.Offset)
	m.Attempts, m.Error, m.Consumer = st.Attempts, st.Error, st.Consumer
	switch st.State {
	case group.StateReady:
		m.State = wire.MessageReady
		if due := m.AppendTime + b.rec.Delay.Microseconds(); !st.Parked && b.rec.Delay > 0 && due > b.now {
			m.State, m.Due = wire.MessageDelayed, due
		}
	case group.StateDelayed:
		m.State, m.Due = wire.MessageDelayed, st.Due
	case group.StateInFlight:
		m.State, m.Due = wire.MessageInFlight, st.Deadline
	case group.StateDead:
		m.State, m.Reason, m.At = wire.MessageDead, st.Dead.Reason, st.Dead.At
	case group.StateSettled: // nobody asks for those
	}
	waits := m.State == wire.MessageReady || m.State == wire.MessageDelayed
	if m.State&b.f.States == 0 || waits && m.Expires != 0 && m.Expires <= b.now {
		return false, nil
	}
	return b.add(&m), nil
}

// seek reads a record of a batch. Those of one batch come in order, unless they were carried.
func (b *browser) seek(x *host.Shared, offset uint64) error {
	if at := x.Sequence(); b.at != at || x.IsCarried() {
		if b.at != at {
			b.read += len(x.Batch)
		}
		b.at = at
		b.records.Reset(x.Batch)
	}
	for {
		ok, err := b.records.Next(&b.rec)
		switch {
		case err != nil:
			b.at = 0
			return err
		case !ok:
			b.at = 0
			return errMoved
		case b.records.Offset() == offset:
			return nil
		}
	}
}

// record is the record that was read.
func (b *browser) record(offset uint64) wire.BrowsedMessage {
	m := wire.BrowsedMessage{
		Offset: offset, AppendTime: b.records.AppendTime(), Generation: b.records.Generation(), Priority: b.rec.Priority,
		Key: b.rec.Key, Value: b.rec.Value, Headers: b.records.HeaderSection(),
	}
	if b.rec.TTL > 0 {
		m.Expires = m.AppendTime + b.rec.TTL.Microseconds()
	}
	return m
}

// add adds a message that the filter lets through, or says that the answer has no room for it.
func (b *browser) add(m *wire.BrowsedMessage) (full bool) {
	if !b.matches() {
		return false
	}
	n := m.Size()
	if have := len(b.out.Messages); have > 0 && (have >= int(b.f.Limit) || b.bytes+n > browseBytes) {
		return true
	}
	b.bytes += n
	m.Key, m.Value, m.Headers = bytes.Clone(m.Key), bytes.Clone(m.Value), bytes.Clone(m.Headers)
	b.out.Messages = append(b.out.Messages, *m)
	return false
}

func (b *browser) matches() bool {
	if b.f.Filter.Kind != wire.FilterAll && (b.rec.Key == nil || !b.f.Filter.Matches(b.rec.Key)) {
		return false
	}
	if !b.f.HasHeader {
		return true
	}
	for _, h := range b.rec.Headers {
		if h.Key == b.f.Header && bytes.Equal(h.Value, b.f.HeaderValue) {
			return true
		}
	}
	return false
}

// log goes through the records of the log.
func (b *browser) log(ctx context.Context, from uint64) error {
	for ctx.Err() == nil {
		v := b.s.View()
		if from = max(from, v.Start.Offset); from >= v.Ceiling {
			return nil
		}
		x, _, err := b.last.find(b.s, from, 0)
		switch {
		case err != nil && errors.Is(err, storage.ErrDropped) && b.s.View().Start.Offset > from:
			continue // retention was faster
		case err != nil:
			return host.ReadError(err)
		}
		next := x.NextOffset()
		for ; from < min(next, v.Ceiling); from++ {
			err := b.seek(x, from)
			if errors.Is(err, batch.ErrCompression) {
				from = next
				break
			}
			if err != nil {
				return host.ReadError(err)
			}
			m := b.record(from)
			m.State = wire.MessageRecord
			if b.rec.Delay > 0 {
				m.Due = m.AppendTime + b.rec.Delay.Microseconds()
			}
			if b.add(&m) {
				b.out.More = true
				return nil
			}
			b.out.Next = from
		}
		if from = min(from, next); b.spent() {
			b.out.Next, b.out.More = max(b.out.Next, from-1), true
			return nil
		}
	}
	return context.Cause(ctx)
}

// inspect looks at the groups of a shard, and waits until what was seen is committed.
func inspect(ctx context.Context, s Shard, look func(*group.View)) error {
	done := make(chan *code.Error, 1)
	to := host.Func(func(a shard.Answer) { done <- a.Err })
	if refused := s.Post(&shard.Inspect{Look: look, To: to}, to); refused != nil {
		return refused
	}
	select {
	case err := <-done:
		if err != nil {
			return err
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
