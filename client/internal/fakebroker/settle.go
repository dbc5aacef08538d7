// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

func (k *consumer) take(h wire.Header, body []byte) {
	b := k.b
	switch h.Type {
	case wire.TypeSettle:
		var f wire.Settle
		if err := f.Parse(body); err != nil {
			b.tb.Error(err)
			return
		}
		k.settle(h.Corr, &f)
	case wire.TypeExtend:
		var f wire.Extend
		if err := f.Parse(body); err != nil {
			b.tb.Error(err)
			return
		}
		b.Change(func() { k.frames = wire.AppendFrame(k.frames, h.Corr, k.extend(&f)) })
	case wire.TypeFlow:
		var f wire.Flow
		if err := f.Parse(body); err != nil {
			b.tb.Error(err)
			return
		}
		b.Change(func() {
			k.limit = int(f.MaxInFlight)
			b.flows = append(b.flows, f)
			for _, x := range f.Begun {
				k.begun[x.Shard] = x.HandOut
			}
		})
	case wire.TypeLeave:
		b.Change(func() {
			k.left = true
			k.giveBack()
			k.gone = false
			k.frames = wire.AppendFrame(k.frames, h.Corr, &wire.ConsumeEnd{Shard: wire.AllShards})
		})
	default:
		b.tb.Errorf("a consume lane brought %s", h.Type)
	}
}

func (k *consumer) settle(corr uint64, f *wire.Settle) {
	b := k.b
	b.mu.Lock()
	b.settles = append(b.settles, *f)
	hook := b.script.Settle
	b.mu.Unlock()
	var v Verdict
	if hook != nil {
		v = hook(f)
	}
	if v.Hold != nil {
		var answer *wire.Settled
		if v.Early {
			b.Change(func() { answer = k.apply(f) })
		}
		go func() { // answered later, and others before it
			<-v.Hold
			b.Change(func() {
				if !v.Early {
					answer = k.apply(f)
				}
				k.frames = wire.AppendFrame(k.frames, corr, answer)
			})
		}()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var answer wire.Frame
	if v.Err == nil || v.Apply {
		answer = k.apply(f)
	}
	if v.Err != nil {
		answer = wire.NewError(v.Err)
	}
	if v.Kill {
		k.gone = true
		k.lane.Reset(code.Unavailable)
	} else {
		k.frames = wire.AppendFrame(k.frames, corr, answer)
	}
	b.changed.Broadcast()
}

// apply settles what it may. Called with mu held.
func (k *consumer) apply(f *wire.Settle) *wire.Settled {
	gs := k.g.Shards[f.Shard]
	ok := &wire.Settled{}
	for n, r := range f.Runs {
		for i := range uint64(r.Count) {
			if !k.settleOne(gs, f, &r, r.HandOut+i, r.Offset+i) {
				ok.Failed = append(ok.Failed, wire.SettleFailed{Run: uint32(n), Index: uint32(i), Code: code.NoLongerOwner})
			}
		}
	}
	return ok
}

func (k *consumer) settleOne(gs *GroupShard, f *wire.Settle, r *wire.SettleRun, handOut, offset uint64) bool {
	c := gs.out[offset]
	_, dead := gs.Dead[offset]
	switch {
	case f.GroupID != k.g.ID || f.Resets != gs.Resets || gs.Settled[offset] || dead:
		return false
	case c != nil && (c.handOut != handOut || c.gen != f.Generation):
		return false
	case c == nil && r.Op != wire.SettleAck:
		return false
	}
	if c != nil {
		delete(gs.out, offset)
		c.lane.out--
	} else {
		gs.again = slices.DeleteFunc(gs.again, func(o uint64) bool { return o == offset })
	}
	switch r.Op {
	case wire.SettleAck:
		gs.Settled[offset] = true
	case wire.SettleReject:
		gs.Dead[offset] = r.Reason
	case wire.SettleNack:
		gs.Attempts[offset]++
		if most := k.g.Settings.MaxAttempts; most > 0 && gs.Attempts[offset] >= most {
			gs.Dead[offset] = r.Reason
			break
		}
		after := time.Duration(r.AfterUs) * time.Microsecond
		if b := k.g.Settings.Backoff; after == 0 && len(b) > 0 {
			after = time.Duration(b[min(int(gs.Attempts[offset]), len(b))-1]) * time.Microsecond
		}
		gs.due[offset] = time.Now().Add(after)
		gs.again = append(gs.again, offset)
	case wire.SettleRelease:
		gs.again = append(gs.again, offset)
	}
	return true
}

func (k *consumer) extend(f *wire.Extend) *wire.Extended {
	gs := k.g.Shards[f.Shard]
	d := time.Duration(f.ForUs) * time.Microsecond
	if d == 0 {
		d = time.Duration(k.g.Settings.AckWait) * time.Microsecond
	}
	ok := &wire.Extended{}
	gs.timeouts(time.Now())
	k.b.extends = append(k.b.extends, *f)
	for i, t := range f.Tokens {
		c := gs.out[t.Offset]
		if c == nil || c.handOut != t.HandOut || c.gen != f.Generation {
			ok.Failed = append(ok.Failed, wire.ExtendFailed{Index: uint32(i), Code: code.NoLongerOwner})
			continue
		}
		c.deadline = time.Now().Add(d)
		time.AfterFunc(d+time.Millisecond, k.b.wake)
	}
	return ok
}

// settlePublished settles what a publish has with it, or nothing. Called with mu held.
func (b *Broker) settlePublished(l *Log, shard uint32, s *batch.Settlement) error {
	for _, g := range b.groups[l.ID] {
		if g.ID != s.Group {
			continue
		}
		gs := g.Shards[shard]
		for _, t := range s.Tokens {
			if c := gs.out[t.Offset]; c == nil || c.handOut != t.HandOut || c.gen != s.Generation || gs.Resets != s.Resets {
				return code.New(code.NoLongerOwner, "message %d", t.Offset)
			}
		}
		for _, t := range s.Tokens {
			gs.out[t.Offset].lane.out--
			delete(gs.out, t.Offset)
			gs.Settled[t.Offset] = true
		}
		return nil
	}
	return code.New(code.NoLongerOwner, "group %d", s.Group)
}
