// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

func carried(t testing.TB, c batch.Compression, records ...batch.Carried) batch.Batch {
	t.Helper()
	b, err := batch.BuildCarried(records, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// origins gives the records places: not in order, as a leader meets those that were carried before among others.
func origins(records ...batch.Record) []batch.Carried {
	var out []batch.Carried
	for i, r := range records {
		out = append(out, batch.Carried{
			Record: r, Offset: uint64(400 - 130*i), Generation: uint64(3 - i%3), AppendTime: start + int64(1000-700*i),
		})
	}
	return out
}

var leaderPlace = batch.Assigned{Sequence: 50, BaseOffset: 1000, Generation: 4, AppendTime: start + 9000, Flushed: 48}

// leaderCases are batches of records that only a leader makes.
func leaderCases(t *testing.T) []vectorCase {
	t.Helper()
	stored := func(name, about string, b batch.Batch) vectorCase {
		return vectorCase{name: name, about: about, form: "stored", raw: assigned(b, leaderPlace)}
	}
	packed := stored("stored_carried_zstd", "carried records, compressed", carried(t, batch.Zstd, origins(compressible()...)...))
	packed.decodeOnly = true
	expired := batch.BuildExpired([][]byte{[]byte("order-17"), {}, []byte("ключ")}, start+8999)
	cut := assigned(bytes.Clone(expired), leaderPlace)
	return []vectorCase{
		stored("stored_carried", "records that were written before; they keep offset, generation and append time",
			carried(t, batch.None, origins(fullRecord(), batch.Record{Key: []byte("k"), Value: []byte{}, Timestamp: start - 9})...)),
		stored("stored_carried_widest", "the last offset and generation below the batch, and the furthest append times",
			carried(t, batch.None,
				batch.Carried{Record: batch.Record{Key: []byte("k"), Value: []byte("v")}, Offset: 999, Generation: 4, AppendTime: math.MinInt64},
				batch.Carried{Record: batch.Record{Key: []byte("l"), Value: []byte("w"), TTL: batch.MaxSchedule}, AppendTime: math.MaxInt64})),
		packed,
		stored("stored_expired", "the time to live of three keys has ended", expired),
		{name: "slice_expired", about: "first and last of three expired keys", form: "slice", raw: slice(t, cut, 0, 2)},
	}
}

func refusedLeaderCases(t *testing.T) []vectorCase {
	t.Helper()
	const meta = batch.HeaderSize
	old := func() []byte {
		return assigned(carried(t, batch.None, batch.Carried{
			Record: batch.Record{Key: []byte("k"), Value: []byte("v"), TTL: time.Microsecond}, Offset: 7, Generation: 3, AppendTime: 1,
		}), batch.Assigned{Sequence: 5, BaseOffset: 8, Generation: 3})
	}
	gone := func() []byte { return assigned(batch.BuildExpired([][]byte{[]byte("k")}, 0), leaderPlace) }
	var out []vectorCase
	for _, c := range []struct {
		name, about string
		of          func() []byte
		apply       func(b []byte)
	}{
		{"carried_producer", "carried records of a producer", old, func(b []byte) { b[64], b[72] = 1, 1 }},
		{"carried_control", "a control batch that is carried", old, func(b []byte) { b[58] = 0x24 }},
		{"carried_dedup", "a carried batch with a dedup id", old, func(b []byte) { b[59] |= 1 }},
		{"carried_expired", "a carried batch of expired keys", old, func(b []byte) { b[59] |= 2 }},
		{"carried_count", "no room for an origin", old, func(b []byte) { b[60] = 3 }},
		{"carried_offset", "an offset that was not yet given", old, func(b []byte) { b[meta] = 8 }},
		{"carried_generation", "a generation that did not yet begin", old, func(b []byte) { b[meta+1] = 4 }},
		{"expired_producer", "expired keys of a producer", gone, func(b []byte) { b[64], b[72] = 1, 1 }},
		{"expired_scheduled", "tombstones with a schedule", gone, func(b []byte) { b[58] |= 128 }},
		{"expired_value", "an expired key with a value", gone, func(b []byte) { b[meta] &^= 2 }},
		{"expired_keyless", "a tombstone of no key", gone, func(b []byte) { b[meta] &^= 1 }},
		{"expired_body", "a body behind tombstones", gone, func(b []byte) { b[92]--; b[88]++ }},
	} {
		b := c.of()
		c.apply(b)
		out = append(out, vectorCase{name: "refused_" + c.name, about: c.about, form: "stored", raw: reseal(b, true)})
	}
	for _, c := range []struct {
		name, about string
		apply       func(b []byte)
	}{
		{"value", "an expired key with a value", func(b []byte) { b[batch.SliceHeaderSize+1] &^= 2 }},
		{"body", "a body behind tombstones", func(b []byte) { b[20]-- }},
	} {
		b := slice(t, gone(), 0)
		c.apply(b)
		out = append(out, vectorCase{name: "refused_slice_expired_" + c.name, about: c.about, form: "slice", raw: resealSlice(b)})
	}
	return out
}
