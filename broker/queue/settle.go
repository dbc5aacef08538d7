// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"strings"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	// maxAsked is how much a lane may have asked for that is not answered; behind it the lane is not read. A request weighs
	// requestWeight, and one for each message that it names: what may fail has to be told for each of them.
	maxAsked      = 160 << 10
	requestWeight = 256
)

func weight(messages int) int64 { return min(int64(messages)+requestWeight, maxAsked) }

// take makes room for a request. Without it the lane is over.
func (l *Lane) take(ctx context.Context, messages int) bool {
	if l.room.Acquire(ctx, weight(messages)) != nil {
		return false
	}
	l.mu.Lock()
	l.asking++
	l.mu.Unlock()
	return true
}

// answer leaves an answer for Serve; its room is free when that is about to write it.
func (l *Lane) answer(corr uint64, messages int, f wire.Frame) {
	l.mu.Lock()
	l.asking--
	if !l.closed {
		l.notes = wire.AppendFrame(l.notes, corr, f)
		l.noted += weight(messages)
	}
	l.mu.Unlock()
	l.signal()
}

// Refuse answers a request that cannot be taken.
func (l *Lane) Refuse(ctx context.Context, corr uint64, why error) {
	if l.take(ctx, 0) {
		l.answer(corr, 0, wire.NewError(code.From(why)))
	}
}

// shardOf is the shard that settles messages of this number: the lane's, or the one that has been opened since.
func (l *Lane) shardOf(id uint32) (Shard, *code.Error) {
	m := l.byShard[id]
	if m == nil {
		return nil, code.New(code.BadRequest, "the lane does not consume from shard %d", id)
	}
	l.mu.Lock()
	ended := m.ended
	l.mu.Unlock()
	if ended {
		return l.cfg.Resolve(id)
	}
	return m.shard, nil
}

// Settle settles messages. It is answered when that is committed, and waits while too much is not answered.
func (l *Lane) Settle(ctx context.Context, corr uint64, f *wire.Settle) {
	n := 0
	for i := range f.Runs {
		n += int(f.Runs[i].Count)
	}
	if !l.take(ctx, n) {
		return
	}
	l.mu.Lock()
	l.cfg.Stats.settled(&l.samples, f.Shard, f.Runs)
	l.mu.Unlock()
	s, refused := l.shardOf(f.Shard)
	if refused == nil {
		x := &settling{lane: l, corr: corr, messages: n}
		x.of = group.Settlement{Group: f.GroupID, Resets: f.Resets, Generation: f.Generation, Tokens: l.tokens(f.Runs), To: x}
		if refused = s.Post(&shard.Settle{List: []*group.Settlement{&x.of}}, x); refused == nil {
			return
		}
	}
	l.answer(corr, n, wire.NewError(refused))
}

var opOf = [...]group.Op{wire.SettleAck: group.Ack, wire.SettleNack: group.Nack, wire.SettleReject: group.Reject, wire.SettleRelease: group.Release}

func (l *Lane) tokens(runs []wire.SettleRun) []group.Token {
	out := make([]group.Token, len(runs))
	for i := range runs {
		r := &runs[i]
		l.cfg.Stats.Asked[r.Op].Add(uint64(r.Count))
		out[i] = group.Token{
			Op: opOf[r.Op], HandOut: r.HandOut, Offset: r.Offset, Count: r.Count, After: int64(r.AfterUs), Reason: cutText(r.Reason),
		}
	}
	return out
}

// settling is a Settle on its way. It is its shard's Waiter.
type settling struct {
	lane     *Lane
	corr     uint64
	of       group.Settlement
	messages int
}

// Answered is called by the shard's goroutine.
func (x *settling) Answered(a shard.Answer) {
	l := x.lane
	if a.Err != nil {
		l.answer(x.corr, x.messages, wire.NewError(a.Err))
		return
	}
	f := &wire.Settled{}
	for _, t := range a.Failed {
		f.Failed = append(f.Failed, wire.SettleFailed{Run: uint32(t.Index), Index: uint32(t.Sub), Code: t.Code})
	}
	l.cfg.Stats.Refused.Add(uint64(len(a.Failed)))
	l.answer(x.corr, x.messages, f)
}

// Extend makes claims last longer. It is answered at once.
func (l *Lane) Extend(ctx context.Context, corr uint64, f *wire.Extend) {
	n := len(f.Tokens)
	if !l.take(ctx, n) {
		return
	}
	to := host.Func(func(a shard.Answer) {
		if a.Err != nil {
			l.answer(corr, n, wire.NewError(a.Err))
			return
		}
		out := &wire.Extended{}
		for _, t := range a.Failed {
			out.Failed = append(out.Failed, wire.ExtendFailed{Index: uint32(t.Index), Code: t.Code})
		}
		l.answer(corr, n, out)
	})
	x := group.Extension{Group: f.GroupID, Resets: f.Resets, Generation: f.Generation, For: int64(f.ForUs), Tokens: make([]group.Token, n)}
	for i, t := range f.Tokens {
		x.Tokens[i] = group.Token{HandOut: t.HandOut, Offset: t.Offset}
	}
	s, refused := l.shardOf(f.Shard)
	if refused == nil {
		refused = s.Post(&shard.ExtendClaims{Extension: x, To: to}, to)
	}
	if refused != nil {
		l.answer(corr, n, wire.NewError(refused))
	}
}

// Flow takes how many messages the consumer wants to have, and how far it has begun to work on them.
func (l *Lane) Flow(f *wire.Flow) {
	l.mu.Lock()
	for _, b := range f.Begun {
		if m := l.byShard[b.Shard]; m != nil {
			m.begun = max(m.begun, b.HandOut)
		}
	}
	l.mu.Unlock()
	l.pool.limit(int(f.MaxInFlight))
}

// Leave gives back all that is out. Serve ends when that has happened, and all that was asked for is answered.
func (l *Lane) Leave() {
	l.mu.Lock()
	if !l.leaving {
		l.leaving = true
		for _, m := range l.members {
			if m.in && !m.left {
				m.staying = true
				l.staying++
			}
			m.over = true // what is handed out from here on goes back
		}
	}
	l.mu.Unlock()
	l.signal()
}

// leaveAll tells the shards that the consumer leaves, and says whether one has to be told again.
func (l *Lane) leaveAll() (again bool) {
	for _, m := range l.members {
		told := m.leave(true, func() {
			l.mu.Lock()
			m.gone()
			l.mu.Unlock()
			l.signal()
		})
		again = again || !told
	}
	return again
}

// cutText is as much of a reason as is kept, in whole characters.
func cutText(s string) string {
	if len(s) <= batch.MaxGroupReason {
		return s
	}
	n := batch.MaxGroupReason
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return strings.Clone(s[:n]) // without what is not kept
}
