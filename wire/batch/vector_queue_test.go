// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

func settlementMeaning(t *testing.T, b batch.Batch) map[string]any {
	t.Helper()
	s, ok, err := b.Settlement()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	tokens := [][2]uint64{}
	for _, x := range s.Tokens {
		tokens = append(tokens, [2]uint64{x.HandOut, x.Offset})
	}
	return map[string]any{"group": s.Group, "resets": s.Resets, "generation": s.Generation, "tokens": tokens}
}

// settling is a batch of a producer that settles messages when it is stored.
func settling(t testing.TB, s batch.Settlement, c batch.Compression, records ...batch.Record) batch.Batch {
	t.Helper()
	b := batch.NewBuilder(batch.Limits{})
	if err := b.SetSettlement(s); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Build(9, 12, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func three() batch.Settlement {
	return batch.Settlement{Group: 0xfedcba9876543210, Resets: 2, Generation: 3, Tokens: []batch.SettledToken{
		{HandOut: 41, Offset: 500}, {HandOut: 43, Offset: 17}, {HandOut: math.MaxUint64, Offset: math.MaxUint64},
	}}
}

func prioritized() []batch.Record {
	full := fullRecord()
	full.Priority = batch.MaxPriority
	return []batch.Record{
		full,
		{Key: []byte("k"), Timestamp: start, Priority: 1},
		{Value: []byte("v"), Timestamp: start},
		{Value: []byte("w"), Timestamp: start, TTL: time.Minute, Priority: 5},
	}
}

// queueCases are batches with what only queues need of a record or a batch.
func queueCases(t *testing.T) []vectorCase {
	t.Helper()
	place := batch.Assigned{Sequence: 42, BaseOffset: 1000, Generation: 3, AppendTime: start + 250, Flushed: 40}
	packed := settling(t, three(), batch.Zstd, compressible()...)
	stored := settling(t, three(), batch.None, prioritized()...)
	stored.Assign(place)
	return []vectorCase{
		{
			name: "produced_priority", about: "the highest priority with every other field, the lowest, and none", form: "produced",
			raw: build(t, 9, 11, batch.None, prioritized()...),
		},
		{
			name: "produced_settlement", about: "three messages of a group are settled with one record", form: "produced",
			raw: settling(t, three(), batch.None, batch.Record{Value: []byte("v"), Timestamp: start}),
		},
		{name: "produced_settlement_zstd", about: "messages are settled with a compressed batch", form: "produced", raw: packed, decodeOnly: true},
		{name: "stored_settlement", about: "a batch with a settlement, and records with a priority, as the leader stores it", form: "stored", raw: stored},
		{
			name: "stored_carried_priority", about: "a carried record keeps its priority", form: "stored",
			raw: assigned(carried(t, batch.None, origins(prioritized()[:2]...)...), leaderPlace),
		},
		{name: "slice_settlement", about: "every record of a batch with a settlement, which a slice does not have", form: "slice", raw: slice(t, stored, 0, 1, 2, 3)},
		{name: "slice_priority", about: "second and last record; they keep their priority", form: "slice", raw: slice(t, stored, 1, 3)},
	}
}

// refusedQueueCases break one rule each, with checksums that are right.
func refusedQueueCases(t *testing.T) []vectorCase {
	t.Helper()
	const meta = batch.HeaderSize
	high := func() []byte {
		return build(t, 0, 0, batch.None, batch.Record{Value: []byte("v"), Priority: 9, TTL: time.Microsecond})
	}
	// size, group of 8 bytes, resets, generation, count, two tokens of 2 bytes; then flags, delta and value size of the record.
	both := func() []byte {
		s := batch.Settlement{Group: 1, Tokens: []batch.SettledToken{{HandOut: 1, Offset: 2}, {HandOut: 3, Offset: 4}}}
		return settling(t, s, batch.None, batch.Record{Value: []byte("v")})
	}
	var out []vectorCase
	for _, c := range []struct {
		name, about string
		of          func() []byte
		apply       func(b []byte)
	}{
		{"priority_zero", "priority 0 is written as none", high, func(b []byte) { b[meta+3] = 0 }},
		{"priority_high", "priority 10", high, func(b []byte) { b[meta+3] = 10 }},
		{"priority_unsaid", "a priority without its attribute", func() []byte {
			return build(t, 0, 0, batch.None, batch.Record{Value: []byte("v"), Priority: 9})
		}, func(b []byte) { b[58] &^= 128 }},
		{"settlement_size", "a settlement longer than the meta section", both, func(b []byte) { b[meta] = 19 }},
		{"settlement_small", "a settlement without room for a message", both, func(b []byte) { b[meta] = 12 }},
		{"settlement_group", "messages of no group", both, func(b []byte) { b[meta+1] = 0 }},
		{"settlement_none", "no message is settled", both, func(b []byte) { b[meta+11] = 0 }},
		{"settlement_count_low", "a message more than the settlement says", both, func(b []byte) { b[meta+11] = 1 }},
		{"settlement_count_high", "a message less than the settlement says", both, func(b []byte) { b[meta+11] = 3 }},
		{"settlement_resets", "resets in two bytes where one would do", both, func(b []byte) { b[meta+9], b[meta+10] = 0x80, 0 }},
		{"settlement_records", "no room for the records behind the settlement", both, func(b []byte) { b[60] = 2 }},
		{"settlement_dedup", "a settlement beside a dedup id", both, func(b []byte) { b[59] |= 1 }},
	} {
		b := c.of()
		c.apply(b)
		out = append(out, vectorCase{name: "refused_" + c.name, about: c.about, form: "produced", raw: reseal(b, false)})
	}
	for _, c := range []struct {
		name, about string
		b           batch.Batch
	}{
		{"control", "a control batch that settles messages", batch.BuildControl(batch.Command{ID: [16]byte{1}})},
		{"carried", "carried records that settle messages", carried(t, batch.None, origins(fullRecord())...)},
		{"expired", "expired keys that settle messages", batch.BuildExpired([][]byte{bytes.Repeat([]byte("k"), 40)}, 0)},
	} {
		b := assigned(c.b, leaderPlace)
		b[58] |= 64
		out = append(out, vectorCase{name: "refused_settlement_" + c.name, about: c.about, form: "stored", raw: reseal(b, true)})
	}
	stored := assigned(both(), leaderPlace)
	stored[meta] = 12
	sliced := slice(t, assigned(both(), leaderPlace), 0)
	binary.LittleEndian.PutUint16(sliced[14:], 64)
	return append(out,
		vectorCase{name: "refused_settlement_many", about: "10001 messages are settled", form: "produced", raw: tooMany(t)},
		vectorCase{name: "refused_settlement_stored", about: "a settlement without room for a message, as stored", form: "stored", raw: reseal(stored, true)},
		vectorCase{name: "refused_slice_settlement", about: "a slice that says it has a settlement", form: "slice", raw: resealSlice(sliced)})
}

// tooMany settles one message more than a batch may: written by hand, for no builder does.
func tooMany(t *testing.T) []byte {
	t.Helper()
	s := batch.Settlement{Group: 1, Tokens: make([]batch.SettledToken, batch.MaxSettled)}
	b := settling(t, s, batch.None, batch.Record{Value: []byte("v")})
	const size, count, tokens = batch.HeaderSize, batch.HeaderSize + 3 + 8 + 1 + 1, batch.HeaderSize + 3 + 8 + 1 + 1 + 2
	out := append(bytes.Clone(b[:tokens]), 0, 0)
	out = append(out, b[tokens:]...)
	binary.PutUvarint(out[size:], 8+1+1+2+2*(batch.MaxSettled+1))
	binary.PutUvarint(out[count:], batch.MaxSettled+1)
	binary.LittleEndian.PutUint32(out[52:], uint32(len(out)))
	binary.LittleEndian.PutUint32(out[92:], binary.LittleEndian.Uint32(out[92:])+2)
	return reseal(out, false)
}

func groupMeaning(t *testing.T, e batch.Entry) map[string]any {
	t.Helper()
	switch e := e.(type) {
	case batch.Group:
		s, all := e.Settings, e.Totals
		backoff := append([]uint64{}, s.Backoff...)
		return map[string]any{
			"type": "group", "id": e.ID, "name": e.Name, "removed": e.Removed, "resets": e.Resets, "created": e.Created, "updated": e.Updated,
			"settings": map[string]any{
				"ack_wait": s.AckWait, "max_attempts": s.MaxAttempts, "backoff": backoff, "order_by_key": s.OrderByKey, "fair_keys": s.FairKeys,
				"paused": s.Paused, "dead_expired": s.DeadExpired, "priority_age": s.PriorityAge, "max_dead": s.MaxDead,
			},
			"cursor": e.Cursor,
			"totals": map[string]any{
				"acked": all.Acked, "expired": all.Expired, "cancelled": all.Cancelled, "lost": all.Lost, "discarded": all.Discarded,
				"dead": all.Dead, "redriven": all.Redriven, "attempts": all.Attempts, "base": all.Base,
			},
		}
	case batch.Settled:
		ranges := [][2]uint64{}
		for _, r := range e.Ranges {
			ranges = append(ranges, [2]uint64{r.From, r.To})
		}
		return map[string]any{"type": "settled", "group": e.Group, "how": e.How, "ranges": ranges}
	case batch.Attempt:
		return map[string]any{
			"type": "attempt", "group": e.Group, "offset": e.Offset, "attempts": e.Attempts, "due": e.Due, "expires": e.Expires,
			"append_time": e.AppendTime, "key": e.Key, "priority": e.Priority, "retry": e.Retry, "count": e.Count, "error": e.Error,
		}
	case batch.Dead:
		return map[string]any{
			"type": "dead", "group": e.Group, "offset": e.Offset, "removed": e.Removed, "attempts": e.Attempts, "reason": e.Reason,
			"at": e.At, "append_time": e.AppendTime, "key": e.Key, "priority": e.Priority, "error": e.Error,
		}
	case batch.Command:
		return map[string]any{"type": "command", "id": hex.EncodeToString(e.ID[:]), "at": e.At, "group": e.Group, "count": e.Count}
	}
	t.Fatalf("no meaning for %T", e)
	return nil
}
