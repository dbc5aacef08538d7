// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/session"
)

// TestHostileFramesOfConsumers: whatever comes on the lanes of consumers, in whatever order, is answered or ends its lane; an
// honest consumer is served all the while, and at the end nobody else has a message.
func TestHostileFramesOfConsumers(t *testing.T) {
	f, c, l := queued(t)
	settings := batch.DefaultGroupSettings()
	settings.MaxAttempts, settings.Backoff = 0, nil
	f.want(l, &wire.GroupCommand{ID: [16]byte{7}, Log: f.log.ID, Op: wire.GroupUpdate, Group: "workers", HasSettings: true, Settings: settings}, &wire.GroupDone{})
	honest := f.consume(c, 3)
	var over sync.WaitGroup
	over.Go(func() { honest.ackAll() })
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c2, _ := f.client()
		bad := f.lane(c2)
		if rng.IntN(4) > 0 {
			f.want(bad, &wire.Consume{Log: f.log.ID, Group: "workers", MaxInFlight: 1 + rng.Uint32N(20), Concurrency: rng.Uint32() | 1, Shards: []uint32{0}}, &wire.Consumed{})
		}
		over.Go(func() { drain(bad) })
		f.push(l, values(1+rng.IntN(5))...)
		for range 40 {
			if bad.Write(hostile(rng, honest)) != nil {
				break
			}
		}
		_ = c2.Close(0, "") // the broker may have been faster
	}
	hosttest.Eventually(t, "all to be settled", func() bool {
		in := f.info(l)
		return in.InFlight+in.Ready+in.Delayed == 0 && len(in.Consumers) == 1
	})
	_ = c.Close(0, "")
	over.Wait()
}

// ackAll acks whatever comes, until the lane ends.
func (x *consumer) ackAll() {
	for {
		h, err := x.lane.ReadHeader()
		if err != nil {
			return
		}
		body, err := x.lane.AppendBody(nil)
		if err != nil {
			return
		}
		if h.Type != wire.TypeMessages {
			continue
		}
		x.messages(h, body)
		f := &wire.Settle{GroupID: x.ok.GroupID, Generation: x.ok.Shards[0].Generation}
		for _, m := range x.got {
			f.Runs = append(f.Runs, wire.SettleRun{Op: wire.SettleAck, HandOut: m.handOut, Offset: m.offset, Count: 1})
		}
		x.got = nil
		if x.lane.SendFrame(1, f) != nil {
			return
		}
	}
}

func drain(l *session.Lane) {
	for {
		h, err := l.ReadHeader()
		if err != nil {
			return
		}
		if l.Skip(h.Size) != nil {
			return
		}
	}
}

// hostile is a frame as no client would send it, or nearly.
func hostile(rng *rand.Rand, x *consumer) []byte {
	types := []wire.Type{
		wire.TypeSettle, wire.TypeSettle, wire.TypeExtend, wire.TypeFlow, wire.TypeConsume, wire.TypeGroupCommand, wire.TypeGroupQuery, wire.TypeBrowse,
		wire.TypeMessages, wire.TypeConsumed, wire.TypePing, wire.TypeWatch, wire.TypeLeave, wire.Type(rng.Uint32()),
	}
	switch rng.IntN(10) {
	case 0, 1: // a body that is none
		body := make([]byte, rng.IntN(200))
		for i := range body {
			body[i] = byte(rng.Uint32()) >> rng.IntN(8)
		}
		h := wire.Header{Type: types[rng.IntN(len(types))], Flags: uint8(rng.IntN(3)), Corr: rng.Uint64(), Size: uint32(len(body))}
		return append(wire.AppendHeader(nil, h), body...)
	case 2: // one that was damaged
		raw := wire.AppendFrame(nil, 9, plausible(rng, x))
		if len(raw) > wire.HeaderSize {
			raw[wire.HeaderSize+rng.IntN(len(raw)-wire.HeaderSize)] ^= 1 << rng.IntN(8)
		}
		return raw
	case 3:
		if rng.IntN(20) == 0 { // no frame at all
			raw := make([]byte, wire.HeaderSize+rng.IntN(50))
			for i := range raw {
				raw[i] = byte(rng.Uint32())
			}
			return raw
		}
	}
	return wire.AppendFrame(nil, rng.Uint64(), plausible(rng, x))
}

// plausible is a frame that can be read, about messages that may be somebody's.
func plausible(rng *rand.Rand, x *consumer) wire.Frame {
	number := func() uint64 {
		if rng.IntN(5) == 0 {
			return rng.Uint64() >> rng.IntN(64)
		}
		return rng.Uint64N(300)
	}
	id, generation := x.ok.GroupID, x.ok.Shards[0].Generation
	if rng.IntN(8) == 0 {
		id, generation = number()+1, number()
	}
	shard := rng.Uint32N(10) / 9
	switch rng.IntN(12) {
	case 0:
		return &wire.Flow{MaxInFlight: rng.Uint32N(wire.MaxInFlight), Begun: []wire.Begun{{Shard: shard, HandOut: number()}}}
	case 1:
		if rng.IntN(10) == 0 {
			return &wire.Leave{}
		}
		return &wire.Browse{Log: x.log.ID, Group: "workers", States: 15, Limit: 1000, Filter: everyKey}
	case 2:
		return &wire.Extend{GroupID: id, Shard: shard, Generation: generation, ForUs: 1000, Tokens: []batch.SettledToken{{HandOut: number(), Offset: number()}}}
	case 3:
		return &wire.Consume{Log: x.log.ID, Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0, shard}}
	}
	f := &wire.Settle{GroupID: id, Shard: shard, Resets: rng.Uint32N(9) / 8, Generation: generation}
	for range 1 + rng.IntN(20) {
		r := wire.SettleRun{Op: wire.SettleOp(1 + rng.IntN(4)), HandOut: number() >> 1, Offset: number() >> 1, Count: 1 + rng.Uint32N(3)}
		if r.Op == wire.SettleNack {
			r.AfterUs = rng.Uint64N(1e6)
		}
		if r.Op == wire.SettleReject {
			r.Reason = "\xff\xfe" // no text
		}
		f.Runs = append(f.Runs, r)
	}
	return f
}
