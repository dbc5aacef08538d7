// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// MessageState is what a message is to a group. States can be joined with |.
type MessageState = wire.MessageState

// The states. Stored is a message that was asked about without a group.
const (
	Ready    = wire.MessageReady
	Delayed  = wire.MessageDelayed
	InFlight = wire.MessageInFlight
	Dead     = wire.MessageDead
	Stored   = wire.MessageRecord
)

// DeadReason is why a message is a dead letter.
type DeadReason = batch.DeadReason

// The reasons.
const (
	DeadAttempts = batch.DeadAttempts
	DeadRejected = batch.DeadRejected
	DeadExpired  = batch.DeadExpired
)

// QueueRecord is a message as Peek, Find and DeadLetters tell it. It is not claimed by that.
type QueueRecord struct {
	Record
	State MessageState
	// Attempts that have ended.
	Attempts int
	// Due is when it may be handed out: zero for now, or as soon as it is its turn. Expires is when its TTL ends, zero for never.
	Due, Expires time.Time
	// Consumer that has it, when it is in flight.
	Consumer string
	// Reason why it is a dead letter.
	Reason DeadReason
	// Error is why its last attempt ended, at most 256 bytes.
	Error string
	// Since is when it became a dead letter, or was handed out.
	Since time.Time
}

// ID names the message.
func (m *QueueRecord) ID() MessageID { return MessageID{m.Shard, m.Offset} }

// FindOption says which messages are meant: Key, Prefix, Pattern, WithHeader, OfGroup, InState. Without one, all are.
type FindOption interface{ applyFind(f *findConfig) }

type findConfig struct {
	selection
	group     string
	states    MessageState
	header    string
	hasHeader bool
	value     []byte
	page      uint32
}

type findOption func(f *findConfig)

func (o findOption) applyFind(f *findConfig) { o(f) }

func (s selector) applyFind(f *findConfig) { f.set(wire.Filter(s)) }

// OfGroup asks what the messages are to a group. What that has settled is passed over.
func OfGroup(name string) FindOption { return findOption(func(f *findConfig) { f.group = name }) }

// InState keeps to messages in some states, of OfGroup. Default Ready, Delayed and InFlight.
func InState(states MessageState) FindOption {
	return findOption(func(f *findConfig) { f.states = states })
}

// WithHeader keeps to messages that have a header of this value.
func WithHeader(name string, value []byte) FindOption {
	return findOption(func(f *findConfig) { f.header, f.hasHeader, f.value = name, true, value })
}

// findPage is how many messages a page of Find has, at most.
const findPage = 256

// Find iterates over messages, by shard and in the order of their offsets. An error is the last element. It reads by pages, so
// what it tells is not of one moment.
//
//	for m, err := range emails.Find(ctx, client.Prefix("user/1/"), client.OfGroup("workers")) {
//		if err != nil { return err }
//		fmt.Println(m.ID(), m.State, m.Attempts)
//	}
func (q *Queue) Find(ctx context.Context, opts ...FindOption) iter.Seq2[*QueueRecord, error] {
	f := findConfig{page: findPage}
	for _, o := range opts {
		o.applyFind(&f)
	}
	return func(yield func(*QueueRecord, error) bool) {
		if err := f.check(q.name); err != nil {
			yield(nil, err)
			return
		}
		r, err := q.resolve(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, shard := range r.shardsOf(&f.filter) {
			ask := f.request(r.info.Log, shard)
			for more := true; more; {
				page, err := q.browse(ctx, r, ask)
				if err != nil {
					yield(nil, err)
					return
				}
				for i := range page.Messages {
					m, err := queueRecord(shard, &page.Messages[i])
					if err != nil {
						yield(nil, err)
						return
					}
					if !yield(m, nil) {
						return
					}
				}
				if more = page.More; more && ask.HasAfter && page.Next <= ask.After {
					yield(nil, code.New(code.Protocol, "find in %s: the page behind offset %d goes on behind %d", q.name, ask.After, page.Next))
					return
				}
				ask.HasAfter, ask.After = true, page.Next
			}
		}
	}
}

// Peek returns up to limit messages, the first by shard and offset. See Find.
func (q *Queue) Peek(ctx context.Context, limit int, opts ...FindOption) ([]*QueueRecord, error) {
	if limit < 1 || limit > wire.MaxBrowse {
		return nil, code.New(code.BadRequest, "peek %s: %d messages: want 1 to %d", q.name, limit, wire.MaxBrowse)
	}
	opts = append(slices.Clip(opts), findOption(func(f *findConfig) { f.page = uint32(limit) }))
	var out []*QueueRecord
	for m, err := range q.Find(ctx, opts...) {
		if err != nil {
			return nil, err
		}
		if out = append(out, m); len(out) == limit {
			break
		}
	}
	return out, nil
}

// DeadLetters iterates over the group's dead letters; see Queue.Find.
func (g *Group) DeadLetters(ctx context.Context, opts ...FindOption) iter.Seq2[*QueueRecord, error] {
	return g.q.Find(ctx, append(slices.Clip(opts), OfGroup(g.name), InState(Dead))...)
}

func (f *findConfig) check(queue string) *Error {
	if err := f.selection.check("find in " + queue); err != nil {
		return err
	}
	switch {
	case f.group == "" && f.states&^Stored != 0:
		return code.New(code.BadRequest, "find in %s: states are of a group: give OfGroup", queue)
	case f.group == "":
		f.states = Stored
		return nil
	case f.states == 0:
		f.states = Ready | Delayed | InFlight
	}
	if f.states&Stored != 0 {
		return code.New(code.BadRequest, "find in %s: Stored is no state of a group", queue)
	}
	return checkGroup(queue, f.group)
}

func (f *findConfig) request(log batch.LogID, shard uint32) *wire.Browse {
	return &wire.Browse{
		Log: log, Shard: shard, Group: f.group, States: f.states, Limit: f.page, Filter: f.filter,
		HasHeader: f.hasHeader, Header: f.header, HeaderValue: f.value,
	}
}

func (q *Queue) browse(ctx context.Context, r *route, ask *wire.Browse) (*wire.Browsed, *Error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	page := &wire.Browsed{}
	if err := q.c.caller.call(ctx, ask, page); err != nil {
		q.gone(r, err)
		return nil, err
	}
	return page, nil
}

func queueRecord(shard uint32, b *wire.BrowsedMessage) (*QueueRecord, *Error) {
	m := &QueueRecord{
		Record: Record{
			Key: b.Key, Value: b.Value, Priority: b.Priority, Shard: shard, Offset: b.Offset, Generation: b.Generation,
			AppendTime: time.UnixMicro(b.AppendTime),
		},
		State: b.State, Attempts: int(b.Attempts), Consumer: b.Consumer, Reason: b.Reason, Error: b.Error,
		Due: timeOrZero(b.Due), Expires: timeOrZero(b.Expires), Since: timeOrZero(b.At),
	}
	var err error
	if m.Headers, err = batch.ParseHeaders(b.Headers, nil); err != nil {
		return nil, code.New(code.Protocol, "message %s: its headers: %w", m.ID(), err)
	}
	m.restore()
	return m, nil
}

func timeOrZero(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
