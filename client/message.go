// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// MessageID names a message of a queue: where it lies.
type MessageID struct {
	Shard  uint32
	Offset uint64
}

// String is SHARD/OFFSET.
func (id MessageID) String() string {
	return strconv.FormatUint(uint64(id.Shard), 10) + "/" + strconv.FormatUint(id.Offset, 10)
}

// ParseMessageID reads SHARD/OFFSET, or OFFSET alone for shard 0.
func ParseMessageID(s string) (MessageID, error) {
	shard, offset, both := strings.Cut(s, "/")
	if !both {
		shard, offset = "0", s
	}
	n, err := strconv.ParseUint(shard, 10, 32)
	o, err2 := strconv.ParseUint(offset, 10, 64)
	if err != nil || err2 != nil {
		return MessageID{}, code.New(code.BadRequest, "message id %.60q: want SHARD/OFFSET", s)
	}
	return MessageID{uint32(n), o}, nil
}

// Message is a message that a consumer has got: until it is settled, or its claim ends, nobody else gets it. The first
// settlement counts; the same one asked for again has its result, another one is refused with ErrNoLongerOwner.
//
// A settlement is durable when it is answered. When its answer is lost with the connection or the broker it is sent again, over the
// next one and under the same claim. A claim ends with its connection, so that may come too late; an Ack counts all the same when
// the broker was restarted, or another took over, and nobody was handed the message since. Too late is ErrNoLongerOwner, and its
// class says whether it is known that nothing was done: Unknown when an earlier try, whose answer was lost, may have settled the
// message.
type Message struct {
	Record
	// Attempt counts, from 1, how often the message was handed out and not given back unused.
	Attempt int

	g       *Consumer
	from    *delivery
	handOut uint64

	// Under Consumer.mu.
	op         wire.SettleOp // 0 until it is settled
	settlement Settlement
	extended   time.Time // until when the claim was extended; zero when it was not
}

func newMessage(g *Consumer, d *delivery, b *batch.Record, offset uint64) *Message {
	if b.Headers != nil {
		b.Headers = append([]Header(nil), b.Headers...) // the reader lends the slice for one record only
	}
	m := &Message{
		Record: Record{
			Key: b.Key, Value: b.Value, Headers: b.Headers, Timestamp: time.UnixMicro(b.Timestamp), Delay: b.Delay, TTL: b.TTL,
			Priority: b.Priority, Shard: d.shard.id, Offset: offset,
		},
		Attempt: d.attempt(d.taken), g: g, from: d, handOut: d.first + uint64(d.taken),
	}
	if d.slice != nil {
		m.Generation, m.AppendTime = d.slice.Generation(), time.UnixMicro(d.slice.AppendTime())
	} else {
		m.Generation, m.AppendTime = g.buffer.records.Generation(), time.UnixMicro(g.buffer.records.AppendTime())
	}
	m.restore()
	return m
}

// ID names the message.
func (m *Message) ID() MessageID { return MessageID{m.Shard, m.Offset} }

// DedupID is an id for what is published in consequence of the message, to wherever that is: the same each time the message is
// handed out to this group, so that a stream or queue stores it once within its dedup window however often this is processed.
// Publishing several records, add to it what tells them apart.
func (m *Message) DedupID() string {
	m.g.mu.Lock()
	group := m.from.claims.Group
	m.g.mu.Unlock()
	return fmt.Sprintf("q%016x.%d.%d", group, m.Shard, m.Offset)
}

// Deadline is when the claim ends unless it is extended: a little earlier at the broker than here.
func (m *Message) Deadline() time.Time {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.until()
}

// until is Deadline. Called with the consumer's mu held.
func (m *Message) until() time.Time {
	if !m.extended.IsZero() {
		return m.extended
	}
	return m.from.at.Add(m.from.wait)
}

// Ack settles the message: it is done, and never comes again. It returns when that is durable. When ctx ends first, the error is
// of class Unknown and the settlement goes on without its caller.
func (m *Message) Ack(ctx context.Context) error { return m.AckAsync().Wait(ctx) }

// AckAsync is Ack that returns at once, so that many are on their way: they share frames. It waits for nothing.
func (m *Message) AckAsync() *Settlement { return m.settle(wire.SettleAck, 0, "") }

// Nack gives the message back after a failure: it comes again after a while, 0 for as long as the group's backoff says, with its
// Attempt counted up; or becomes a dead letter when that was its last.
func (m *Message) Nack(ctx context.Context, after time.Duration) error {
	return m.NackAsync(after, "").Wait(ctx)
}

// NackAsync is Nack that returns at once, with a reason that the dead letter shows; of that, 256 bytes are kept.
func (m *Message) NackAsync(after time.Duration, reason string) *Settlement {
	if after < 0 || after > batch.MaxSchedule {
		return &Settlement{err: code.New(code.BadRequest, "nack %s after %v: want 0 to %v", m.ID(), after, batch.MaxSchedule)}
	}
	us := uint64((after + time.Microsecond - 1) / time.Microsecond)
	return m.settle(wire.SettleNack, us, reason)
}

// Reject makes the message a dead letter at once: no attempt will succeed. Of the reason, 256 bytes are kept.
func (m *Message) Reject(ctx context.Context, reason string) error {
	return m.RejectAsync(reason).Wait(ctx)
}

// RejectAsync is Reject that returns at once.
func (m *Message) RejectAsync(reason string) *Settlement {
	return m.settle(wire.SettleReject, 0, reason)
}

// Release gives the message back unused: it comes again at once, here or elsewhere, and no attempt is counted.
func (m *Message) Release(ctx context.Context) error {
	return m.settle(wire.SettleRelease, 0, "").Wait(ctx)
}

// Settled reports whether the message was settled here, or that was asked for.
func (m *Message) Settled() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.op != 0
}

func (m *Message) settle(op wire.SettleOp, after uint64, reason string) *Settlement {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.op == op:
		return &m.settlement
	case m.op == opPublished && op == wire.SettleAck:
		return &Settlement{m: m} // it is done
	case m.op != 0:
		return &Settlement{m: m, err: code.New(code.NoLongerOwner, "settle message %s: it was settled here before", m.ID())}
	case g.err != nil:
		return &Settlement{m: m, err: code.New(g.err.Code, "settle message %s: the consumer has ended: %s", m.ID(), g.err.Message)}
	}
	m.op = op
	m.settlement.m = m
	m.settlement.f, m.settlement.index = g.book.Add(m.from.claims, settle.Token{
		HandOut: m.handOut, Offset: m.Offset, Op: op, After: after, Reason: keptReason(reason),
	})
	g.returned()
	if l := m.from.shard.lane; l != nil {
		l.settled()
	}
	return &m.settlement
}

// returned counts a message that the application has no more. Called with mu held.
func (g *Consumer) returned() {
	if g.out--; g.out > 0 {
		return
	}
	poke(g.rest)
	if g.merge {
		poke(g.kick)
	}
}

// keptReason is what the broker keeps of a reason. What is longer would make a frame too large that others share.
func keptReason(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= batch.MaxGroupReason {
		return s
	}
	return strings.ToValidUTF8(s[:batch.MaxGroupReason], "")
}

// Settlement is what becomes of an Ack, Nack or Reject that goes on by itself.
type Settlement struct {
	m     *Message
	f     *settle.Flight
	index uint32
	err   *Error // it was not accepted
}

// Wait returns nil when the message is settled and that is durable. When ctx ends first, the error is of class Unknown and the
// settlement goes on: Wait again to hear what became of it.
func (s *Settlement) Wait(ctx context.Context) error {
	if s.f == nil {
		return orNil(s.err)
	}
	select {
	case <-s.f.Done:
		return s.result()
	default:
	}
	select {
	case <-s.f.Done:
		return s.result()
	case <-ctx.Done():
		return ended(ctx, Unknown, "settle message %s: that goes on without its caller", s.m.ID())
	}
}

func (s *Settlement) result() error {
	err := s.f.Result(s.index)
	if err == nil {
		return nil
	}
	e := *err
	e.Message = "settle message " + s.m.ID().String() + ": " + e.Message
	return &e
}

// Done is closed when Wait no longer waits.
func (s *Settlement) Done() <-chan struct{} {
	if s.f == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.f.Done
}
