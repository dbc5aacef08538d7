// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// extension is one message whose claim is to live longer.
type extension struct {
	m     *Message
	shard *consumeShard
	forUs uint64
	auto  bool // asked for by Handle, which looks again
	sent  time.Time
	// done hears the answer, under Consumer.mu: it must not wait.
	done func(err *Error)
}

// Extend lets the claim live until d from now, 0 for the group's ack wait, at most 12 h. ErrNoLongerOwner says that the claim
// has ended: stop, somebody else may have the message.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	if d < 0 || d > batch.MaxAckWait {
		return code.New(code.BadRequest, "extend the claim of %s by %v: want 0 to %v", m.ID(), d, batch.MaxAckWait)
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	answer := make(chan *Error, 1)
	x := m.extend(d, false, func(err *Error) { answer <- err })
	select {
	case err := <-answer:
		return orNil(err)
	case <-ctx.Done():
		m.g.mu.Lock()
		m.from.shard.extensions = slices.DeleteFunc(m.from.shard.extensions, func(o *extension) bool { return o == x })
		m.g.mu.Unlock()
		return ended(ctx, Unknown, "extend the claim of %s", m.ID())
	}
}

func (m *Message) extend(d time.Duration, auto bool, done func(*Error)) *extension {
	us := uint64((d + time.Microsecond - 1) / time.Microsecond)
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	x := &extension{m: m, shard: m.from.shard, forUs: us, auto: auto, done: done}
	switch {
	case m.op != 0:
		done(code.New(code.NoLongerOwner, "extend the claim of %s: it was settled here before", m.ID()))
	case g.err != nil:
		done(g.err)
	case auto && m.awaited(time.Now(), time.Until(m.until())):
		done(nil) // see holdExtensions
	default:
		x.shard.extensions = append(x.shard.extensions, x)
		if x.shard.lane != nil {
			x.shard.lane.rouse()
		}
	}
	return x
}

// appendExtensions appends what is to be extended, many in one frame. Called with mu held.
func (l *consumeLane) appendExtensions(buf []byte, now time.Time) []byte {
	for _, s := range l.shards {
		for len(s.extensions) > 0 && !l.leaveOut {
			first := s.extensions[0]
			n := 1
			for n < len(s.extensions) && n < wire.MaxSettleTokens && s.extensions[n].joins(first) {
				n++
			}
			asked := slices.Clone(s.extensions[:n])
			s.extensions = slices.Delete(s.extensions, 0, n)
			c := &first.m.from.claims
			f := wire.Extend{GroupID: c.Group, Shard: c.Shard, Resets: c.Resets, Generation: c.Generation, ForUs: first.forUs}
			for _, x := range asked {
				x.sent = now
				f.Tokens = append(f.Tokens, batch.SettledToken{HandOut: x.m.handOut, Offset: x.m.Offset})
			}
			l.extends++
			l.asked[corrExtend+l.extends] = asked
			buf = wire.AppendFrame(buf, corrExtend+l.extends, &f)
		}
	}
	return buf
}

func (x *extension) joins(o *extension) bool {
	return x.m.from.claims == o.m.from.claims && x.forUs == o.forUs
}

// extended takes the answer to a frame.
func (l *consumeLane) extended(corr uint64, f *wire.Extended) *Error {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	asked, ok := l.asked[corr]
	if !ok {
		return l.notOwed(corr)
	}
	delete(l.asked, corr)
	failed := map[uint32]code.Code{}
	for _, x := range f.Failed {
		failed[x.Index] = x.Code
	}
	for i, x := range asked {
		if c, no := failed[uint32(i)]; no {
			x.done(code.New(c, "extend the claim of %s", x.m.ID()))
			continue
		}
		d := time.Duration(x.forUs) * time.Microsecond
		if d == 0 {
			d = g.ackWait
		}
		x.m.extended = x.sent.Add(d)
		x.done(nil)
	}
	return nil
}

// extensionsRefused takes an error as the answer to a frame.
func (l *consumeLane) extensionsRefused(corr uint64, err *Error) *Error {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	asked, ok := l.asked[corr]
	if !ok {
		return l.notOwed(corr)
	}
	delete(l.asked, corr)
	for _, x := range asked {
		x.done(err)
	}
	return nil
}
