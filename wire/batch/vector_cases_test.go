// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

type vectorCase struct {
	name, about string
	form        string
	raw         []byte
	decodeOnly  bool // compressed bytes may change with the library that made them; what they mean may not
}

const start = int64(1_700_000_000_000_000)

func vectorCases(t *testing.T) []vectorCase {
	t.Helper()
	var all []vectorCase
	all = append(all, producedCases(t)...)
	all = append(all, storedCases(t)...)
	all = append(all, controlCases()...)
	all = append(all, refusedCases(t)...)
	all = append(all, refusedAttributeCases(t)...)
	all = append(all, leaderCases(t)...)
	all = append(all, refusedLeaderCases(t)...)
	all = append(all, queueCases(t)...)
	all = append(all, groupCases()...)
	all = append(all, refusedQueueCases(t)...)
	all = append(all, refusedGroupCases()...)
	all = append(all, sliceCases(t)...)
	all = append(all, refusedSliceCases(t)...)
	return append(all, refusedControlCases()...)
}

func fullRecord() batch.Record {
	return batch.Record{
		Key: []byte("order-17"), Value: []byte(`{"total":12}`), Timestamp: start, Delay: 1500 * time.Millisecond,
		TTL: time.Hour, Headers: []batch.Header{{Key: "trace", Value: []byte{0xca, 0xfe}}},
	}
}

func compressible() []batch.Record {
	return []batch.Record{
		{Key: []byte("a"), Value: bytes.Repeat([]byte("margay "), 40), Timestamp: start},
		{Key: []byte("b"), Timestamp: start + 5, TTL: time.Minute},
		{Value: bytes.Repeat([]byte("margay "), 20), Timestamp: start + 9, Headers: []batch.Header{{Key: "kind", Value: []byte("x")}}},
	}
}

func producedCases(t *testing.T) []vectorCase {
	t.Helper()
	plain := func(name, about string, id, seq uint64, records ...batch.Record) vectorCase {
		return vectorCase{name: name, about: about, form: "produced", raw: build(t, id, seq, batch.None, records...)}
	}
	var keys [][]byte
	for _, k := range []string{"", "k", "ключ"} {
		keys = append(keys, []byte(k))
	}
	return []vectorCase{
		plain("produced_smallest", "one record with nothing but an empty value, no producer", 0, 0, batch.Record{Value: []byte{}}),
		plain("produced_full", "every field of a record", 0x0102030405060708, 1, fullRecord()),
		plain("produced_tombstone", "a tombstone is not an empty value; a header may stand on either", 9, 4,
			batch.Record{Key: []byte("k"), Timestamp: start, Headers: []batch.Header{{Key: "why", Value: []byte("gone")}}},
			batch.Record{Key: []byte("k"), Value: []byte{}, Timestamp: start + 1}),
		plain("produced_keys", "no key, an empty key, a short key, a key beyond ASCII", 9, 5,
			batch.Record{Value: []byte("v"), Timestamp: start}, batch.Record{Key: keys[0], Value: []byte("v"), Timestamp: start},
			batch.Record{Key: keys[1], Value: []byte("v"), Timestamp: start}, batch.Record{Key: keys[2], Value: []byte("v"), Timestamp: start}),
		plain("produced_timestamps", "deltas go both ways and are to the first record, not to the one before", 9, 6,
			batch.Record{Value: []byte("a"), Timestamp: start}, batch.Record{Value: []byte("b"), Timestamp: start - 70},
			batch.Record{Value: []byte("c"), Timestamp: start + 1_000_000}, batch.Record{Value: []byte("d"), Timestamp: -1}),
		plain("produced_widest", "largest producer, largest sequence, earliest and latest timestamp of one batch, longest schedule",
			math.MaxUint64, math.MaxUint64, batch.Record{Value: []byte("a"), Timestamp: -1},
			batch.Record{Value: []byte("b"), Timestamp: math.MaxInt64 - 1},
			batch.Record{Value: []byte("c"), Timestamp: math.MinInt64, Delay: batch.MaxSchedule - time.Microsecond, TTL: batch.MaxSchedule}),
		plain("produced_schedule", "delay alone, TTL alone, and the closest both may be", 9, 7,
			batch.Record{Value: []byte("a"), Timestamp: start, Delay: time.Microsecond},
			batch.Record{Value: []byte("b"), Timestamp: start, TTL: time.Microsecond},
			batch.Record{Value: []byte("c"), Timestamp: start, Delay: time.Second, TTL: time.Second + time.Microsecond}),
		plain("produced_headers", "several headers, a repeated name, an empty name, an empty value", 9, 8,
			batch.Record{Value: []byte("v"), Timestamp: start, Headers: []batch.Header{
				{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte("3")}, {Key: "ключ"},
			}},
			batch.Record{Value: bytes.Repeat([]byte{7}, 300), Timestamp: start}),
		plain("produced_dedup", "the longest dedup id; another header stands behind it", 9, 10, batch.Record{
			Value: []byte("v"), Timestamp: start, TTL: time.Minute, Headers: []batch.Header{
				{Key: batch.DedupHeader, Value: bytes.Repeat([]byte("i"), batch.MaxDedupID)}, {Key: "kind", Value: []byte("x")},
			},
		}),
		plain("produced_dedup_later", "dedup-id is a header like any other when it is not the first", 9, 11,
			batch.Record{Value: []byte("v"), Timestamp: start, Headers: []batch.Header{{Key: "kind"}, {Key: batch.DedupHeader}}}),
		{
			name: "produced_zstd", about: "compressed body; keys, tombstone and schedule stay readable", form: "produced",
			raw: build(t, 9, 9, batch.Zstd, compressible()...), decodeOnly: true,
		},
	}
}

func assigned(b batch.Batch, a batch.Assigned) []byte {
	b.Assign(a)
	return b
}

func storedCases(t *testing.T) []vectorCase {
	t.Helper()
	return []vectorCase{
		{
			name: "stored_full", about: "produced_full as the leader stores and serves it", form: "stored",
			raw: assigned(build(t, 0x0102030405060708, 1, batch.None, fullRecord()),
				batch.Assigned{Sequence: 42, BaseOffset: 1000, Generation: 3, AppendTime: start + 250, Flushed: 40}),
		},
		{
			name: "stored_first", about: "the first record batch of a log", form: "stored",
			raw: assigned(build(t, 0, 0, batch.None, batch.Record{Value: []byte("hello"), Timestamp: start}),
				batch.Assigned{Sequence: 1, Generation: 1, AppendTime: start, Flushed: 1}),
		},
		{
			name: "stored_zstd", about: "a compressed batch as stored", form: "stored", decodeOnly: true,
			raw: assigned(build(t, 9, 9, batch.Zstd, compressible()...),
				batch.Assigned{Sequence: 7, BaseOffset: 20, Generation: 2, AppendTime: start + 20, Flushed: 7}),
		},
	}
}

func window(n int) []batch.Stored {
	var out []batch.Stored
	for i := range n {
		out = append(out, batch.Stored{
			Sequence: uint64(i + 5), BaseOffset: uint64(100 + i*4), Count: 3, AppendTime: start + int64(i*10), Generation: uint64(2 + i/2),
		})
	}
	return out
}

func controlCases() []vectorCase {
	control := func(name, about string, entries ...batch.Entry) vectorCase {
		return vectorCase{name: name, about: about, form: "stored", raw: assigned(batch.BuildControl(entries...),
			batch.Assigned{Sequence: 12, BaseOffset: 120, Generation: 4, AppendTime: start, Flushed: 11})}
	}
	opening := batch.Opening{Generation: 4, Leader: "node-a", Replicas: []string{"node-a", "node-b", "node-c"}}
	lossy := batch.Opening{Generation: 5, Leader: "b", Replicas: []string{"b"}, Lossy: true, LossySequence: 700, LossyOffset: 9000}
	generations := batch.Generations{Table: []batch.GenerationStart{
		{Generation: 1}, {Generation: 3, Sequence: 10, Offset: 90}, {Generation: 4, Sequence: 12, Offset: 120},
	}}
	producer := batch.Producer{ID: 0xfedcba9876543210, LastSequence: 8, Generation: 3, LastAppend: start + 30, Window: window(4)}
	return []vectorCase{
		control("control_opening", "a leader opens its generation", opening),
		control("control_opening_lossy", "a leader opens a shard that has lost records", lossy),
		control("control_log_start", "the log starts later", batch.LogStart{Sequence: 300, Offset: 5000}),
		control("control_producer", "what is remembered of two producers", producer, batch.Producer{ID: 1}),
		control("control_generations", "where the generations began", generations, batch.Generations{}),
		control("control_checkpoint", "a whole checkpoint in one batch", batch.CheckpointPart{Total: 1}, opening,
			batch.LogStart{}, generations, producer),
		control("control_checkpoint_first", "first part of a checkpoint of three", batch.CheckpointPart{Total: 3}, opening),
		control("control_cursor", "a cursor moves, another is removed",
			batch.Cursor{Name: "meter-7", Offset: 118, Generation: 4, Epoch: 3, Updated: start + 70},
			batch.Cursor{Name: "gone", Offset: 9, Generation: 1, Epoch: 1, Updated: start, Removed: true}),
		control("control_dedup", "a checkpoint with dedup ids", batch.CheckpointPart{Total: 1}, batch.Dedup{Stored: []batch.DedupStored{
			{ID: "a", Offset: 7, AppendTime: start}, {ID: "\x00\xff", Offset: 117, AppendTime: start + 9},
		}}, batch.Dedup{}),
		control("control_last", "the last record of a session, and one that was taken back",
			batch.Last{ID: 5, Grace: 30 * time.Second, Batch: batch.Batch{1, 2, 3}}, batch.Last{ID: 6, Removed: true}),
		control("control_checkpoint_last", "last part of a checkpoint of three", batch.CheckpointPart{Index: 2, Total: 3}, producer),
	}
}

// refusedCases break one rule each, with checksums that are right.
func refusedCases(t *testing.T) []vectorCase {
	t.Helper()
	const meta = batch.HeaderSize
	type change struct {
		name, about string
		apply       func(b []byte)
	}
	base := func() []byte {
		return build(t, 9, 1, batch.None,
			batch.Record{Key: []byte("k"), Value: []byte("value"), Timestamp: start, Delay: 3 * time.Microsecond, TTL: 5 * time.Microsecond},
			batch.Record{Timestamp: start, Value: []byte("v"), Headers: []batch.Header{{Key: "h", Value: []byte("w")}}})
	}
	second := meta + 7 // flags, delta, key size, key, delay, TTL, value size
	var out []vectorCase
	for _, c := range []change{
		{"assigned", "a producer filled the leader's part", func(b []byte) { b[8] = 1 }},
		{"version", "version 2", func(b []byte) { b[56] = 2 }},
		{"reserved", "reserved byte is set", func(b []byte) { b[57] = 1 }},
		{"compression", "compression 3", func(b []byte) { b[58] |= 3 }},
		{"control", "a producer sent a control batch", func(b []byte) { b[58] |= 4 }},
		{"carried", "attribute of a later release", func(b []byte) { b[58] |= 32 }},
		{"settlement", "attribute of a later release", func(b []byte) { b[58] |= 64 }},
		{"expired", "a producer says that keys have expired", func(b []byte) { b[59] |= 2 }},
		{"attribute", "attribute without a meaning", func(b []byte) { b[59] |= 0x80 }},
		{"count_zero", "no records", func(b []byte) { b[60] = 0 }},
		{"count_low", "a record more than the header says", func(b []byte) { b[60] = 1 }},
		{"count_high", "a record less than the header says", func(b []byte) { b[60] = 3 }},
		{"producer", "producer without a sequence", func(b []byte) { b[72] = 0 }},
		{"plain_size", "plain size is not the body's", func(b []byte) { b[88]++ }},
		{"meta_size", "meta size beyond the batch", func(b []byte) { binary.LittleEndian.PutUint32(b[92:], 1<<31) }},
		{"record_flag", "the flag of a priority where none stands", func(b []byte) { b[meta] |= 0x20 }},
		{"record_flag_unknown", "record flag without a meaning", func(b []byte) { b[meta] |= 0x40 }},
		{"first_delta", "the first record's delta is not zero", func(b []byte) { b[meta+1] = 2 }},
		{"key_size", "key longer than the meta", func(b []byte) { b[meta+2] = 0x7f }},
		{"delay_zero", "delay of zero", func(b []byte) { b[meta+4] = 0 }},
		{"ttl_is_delay", "expires when it falls due", func(b []byte) { b[meta+5] = 3 }},
		{"value_size", "values beyond the body", func(b []byte) { b[meta+6] = 0x7f }},
		{"headers_size", "header section of size zero", func(b []byte) { b[second+3] = 0 }},
		{"header_count", "header section without a header", func(b []byte) { b[len(b)-6] = 0 }},
		{"header_name", "header name longer than its section", func(b []byte) { b[len(b)-5] = 9 }},
	} {
		b := base()
		c.apply(b)
		out = append(out, vectorCase{name: "refused_" + c.name, about: c.about, form: "produced", raw: reseal(b, false)})
	}
	flipped := base()
	flipped[len(flipped)-1] ^= 1
	magic := assigned(base(), batch.Assigned{Sequence: 1})
	magic[4] = 'X'
	damaged := assigned(base(), batch.Assigned{Sequence: 1})
	damaged[9] ^= 1
	return append(out,
		vectorCase{name: "refused_checksum", about: "one bit of a value is flipped", form: "produced", raw: flipped},
		vectorCase{name: "refused_short", about: "the last byte is missing", form: "produced", raw: base()[:len(flipped)-1]},
		vectorCase{name: "refused_trailing", about: "a byte too many", form: "produced", raw: append(base(), 0)},
		vectorCase{name: "refused_varint", about: "value size in two bytes where one would do", form: "produced", raw: overlong(t)},
		vectorCase{name: "refused_magic", about: "no batch begins here", form: "stored", raw: reseal(magic, true)},
		vectorCase{name: "refused_assigned_checksum", about: "one bit of the sequence is flipped", form: "stored", raw: damaged})
}

func overlong(t *testing.T) []byte {
	t.Helper()
	b := build(t, 0, 0, batch.None, batch.Record{Value: []byte("v")})
	const at = batch.HeaderSize + 2
	long := append(bytes.Clone(b[:at]), 0x81, 0x00)
	long = append(long, b[at+1:]...)
	binary.LittleEndian.PutUint32(long[52:], uint32(len(long)))
	long[92]++
	return reseal(long, false)
}

func refusedControlCases() []vectorCase {
	control := func(name, about string, change func(b []byte), entries ...batch.Entry) vectorCase {
		b := assigned(batch.BuildControl(entries...), batch.Assigned{Sequence: 2, Generation: 1})
		change(b)
		return vectorCase{name: "refused_" + name, about: about, form: "stored", raw: reseal(b, true)}
	}
	part := batch.CheckpointPart{Total: 2}
	nothing := func([]byte) {}
	return []vectorCase{
		control("entry_unknown", "entry of a later release", nothing, foreignEntry{}),
		control("entry_index", "part 2 of a checkpoint of two, counted from 0", func(b []byte) { b[batch.HeaderSize+2] = 2 }, part),
		control("entry_part_late", "part entry that does not stand first", nothing, batch.LogStart{}, part),
		control("entry_part_missing", "checkpoint without its part entry", func(b []byte) { b[58] |= 8 }, batch.LogStart{}),
		control("entry_start", "checkpoint start that is part 1", func(b []byte) { b[58] |= 16 }, batch.CheckpointPart{Index: 1, Total: 2}),
		control("entry_lossy", "neither lossy nor not", func(b []byte) { b[len(b)-1] = 2 }, batch.Opening{Leader: "a"}),
		control("entry_removed", "neither removed nor not", func(b []byte) { b[len(b)-1] = 2 }, batch.Cursor{Name: "a"}),
		control("entry_last_empty", "last record without a batch", nothing, batch.Last{ID: 1}),
		control("entry_last_removed", "a last record that is removed and has a batch", nothing, batch.Last{ID: 1, Removed: true, Batch: batch.Batch{1}}),
		control("entry_dedup_count", "more ids than there are bytes", func(b []byte) { b[batch.HeaderSize+2] = 3 }, batch.Dedup{Stored: []batch.DedupStored{{ID: "a"}, {ID: "b"}}}),
		control("control_scheduled", "control batch with a schedule", func(b []byte) { b[58] |= 128 }, batch.LogStart{}),
		control("control_dedup_id", "control batch with a dedup id", func(b []byte) { b[59] |= 1 }, batch.LogStart{}),
		control("entry_trailing", "entry longer than its fields", nothing, trailingEntry{}),
		control("control_zstd", "compressed control batch", func(b []byte) { b[58] |= 1 }, batch.LogStart{}),
		control("control_start", "checkpoint start that is no checkpoint", func(b []byte) { b[58] |= 16 }, batch.LogStart{}),
		control("control_producer", "control batch of a producer", func(b []byte) { b[64], b[72] = 1, 1 }, batch.LogStart{}),
		control("control_empty", "control batch without an entry", nothing),
		control("control_timestamp", "control batch with a record's timestamp", func(b []byte) { b[80] = 1 }, batch.LogStart{}),
	}
}

type trailingEntry struct{}

func (trailingEntry) Type() batch.EntryType      { return batch.TypeLogStart }
func (trailingEntry) AppendTo(dst []byte) []byte { return append(dst, 1, 2, 3) }
