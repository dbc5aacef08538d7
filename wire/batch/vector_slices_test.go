// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

func sliceSource(t *testing.T, c batch.Compression) batch.Batch {
	t.Helper()
	b := build(t, 9, 9, c, append(compressible(), fullRecord(), batch.Record{Key: []byte("z"), Value: []byte{}, Timestamp: start - 3})...)
	b.Assign(batch.Assigned{Sequence: 7, BaseOffset: 20, Generation: 2, AppendTime: start + 20, Flushed: 7})
	return b
}

func slice(t testing.TB, b batch.Batch, keep ...int) batch.Slice {
	t.Helper()
	s, err := batch.BuildSlice(b, keep)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sliceCases(t *testing.T) []vectorCase {
	t.Helper()
	return []vectorCase{
		{name: "slice_some", about: "first, fourth and last record of five", form: "slice", raw: slice(t, sliceSource(t, batch.None), 0, 3, 4)},
		{name: "slice_zstd", about: "the third record of a compressed batch; a slice is plain", form: "slice", raw: slice(t, sliceSource(t, batch.Zstd), 2)},
		{name: "slice_tombstone", about: "a tombstone alone: no body", form: "slice", raw: slice(t, sliceSource(t, batch.None), 1)},
		{name: "slice_all", about: "every record", form: "slice", raw: slice(t, sliceSource(t, batch.None), 0, 1, 2, 3, 4)},
	}
}

// resealSlice makes the checksum right again.
func resealSlice(s []byte) []byte {
	binary.LittleEndian.PutUint32(s, crc32.Checksum(s[4:], crc32.MakeTable(crc32.Castagnoli)))
	return s
}

func refusedSliceCases(t *testing.T) []vectorCase {
	t.Helper()
	const meta = batch.SliceHeaderSize
	source := build(t, 0, 0, batch.None, batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: start},
		batch.Record{Value: []byte("w"), Timestamp: start}, batch.Record{Value: []byte("x"), Timestamp: start})
	source.Assign(batch.Assigned{Sequence: 3, BaseOffset: 8, Generation: 1})
	whole := slice(t, source, 0, 2)
	second := meta + 6 // place, flags, delta, key size, key, value size
	var out []vectorCase
	for _, c := range []struct {
		name, about string
		apply       func(b []byte)
	}{
		{"magic", "no slice begins here", func(b []byte) { b[4] = 'X' }},
		{"version", "version 2", func(b []byte) { b[12] = 2 }},
		{"reserved", "reserved byte is set", func(b []byte) { b[13] = 1 }},
		{"attribute", "attribute without a meaning", func(b []byte) { b[14] = 1 }},
		{"size", "smaller than its header", func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 71) }},
		{"count_zero", "no records", func(b []byte) { b[16] = 0 }},
		{"count_source", "more records than the source has", func(b []byte) { b[40] = 9 }},
		{"count_low", "a record more than the header says", func(b []byte) { b[16] = 1 }},
		{"meta_size", "meta beyond the slice", func(b []byte) { binary.LittleEndian.PutUint32(b[20:], 1<<31) }},
		{"backwards", "next offset below the base offset", func(b []byte) { b[40] = 7 }},
		{"span", "a source of more records than a batch can have", func(b []byte) { b[43] = 1 }},
		{"place_again", "the same record twice", func(b []byte) { b[second] = 0 }},
		{"place_beyond", "a record that the source does not have", func(b []byte) { b[second] = 3 }},
		{"first_delta", "the delta of the source's first record is not zero", func(b []byte) { b[meta+2] = 2 }},
		{"value_size", "values beyond the body", func(b []byte) { b[meta+5] = 9 }},
		{"body", "a body beyond the values", func(b []byte) { b[meta+5] = 0 }},
	} {
		b := bytes.Clone(whole)
		c.apply(b)
		out = append(out, vectorCase{name: "refused_slice_" + c.name, about: c.about, form: "slice", raw: resealSlice(b)})
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	return append(out,
		vectorCase{name: "refused_slice_checksum", about: "one bit of a value is flipped", form: "slice", raw: flipped},
		vectorCase{name: "refused_slice_short", about: "the last byte is missing", form: "slice", raw: whole[:len(whole)-1]})
}

// refusedAttributeCases say of their records what is not so.
func refusedAttributeCases(t *testing.T) []vectorCase {
	t.Helper()
	scheduled := batch.Record{Value: []byte("v"), Timestamp: start, TTL: time.Minute}
	named := batch.Record{Value: bytes.Repeat([]byte("v"), 200), Timestamp: start, Headers: []batch.Header{{Key: batch.DedupHeader, Value: []byte("id")}}}
	other := batch.Record{Value: []byte("v"), Timestamp: start, Headers: []batch.Header{{Key: "dedup-ix", Value: []byte("id")}}}
	long := named
	long.Headers = []batch.Header{{Key: batch.DedupHeader, Value: bytes.Repeat([]byte("i"), batch.MaxDedupID)}}
	plain := batch.Record{Value: []byte("v"), Timestamp: start}
	one := func(r ...batch.Record) []byte { return build(t, 0, 0, batch.None, r...) }
	change := func(name, about string, b []byte, apply func(b []byte)) vectorCase {
		apply(b)
		return vectorCase{name: "refused_" + name, about: about, form: "produced", raw: reseal(b, false)}
	}
	stored := func(name, about string, b []byte) vectorCase {
		b[59] = 1
		batch.Batch(b).Assign(batch.Assigned{Sequence: 1})
		return vectorCase{name: "refused_" + name, about: about, form: "stored", raw: reseal(b, true)}
	}
	const headers = batch.HeaderSize + 5 // flags, delta, value size in two bytes, size of the headers
	return []vectorCase{
		change("scheduled_unsaid", "a TTL that the attributes do not tell of", one(plain, scheduled), func(b []byte) { b[58] = 0 }),
		change("scheduled_nothing", "the attributes tell of a schedule and no record has one", one(plain), func(b []byte) { b[58] = 128 }),
		change("dedup_unsaid", "a dedup id that the attributes do not tell of", one(named), func(b []byte) { b[59] = 0 }),
		change("dedup_nothing", "the attributes tell of a dedup id and there is none", one(other), func(b []byte) { b[59] = 1 }),
		change("dedup_no_headers", "the attributes tell of a dedup id and there is no header", one(plain), func(b []byte) { b[59] = 1 }),
		change("dedup_two", "a dedup id in a batch of two", one(plain, plain), func(b []byte) { b[59] = 1 }),
		change("dedup_second", "the second of two records has a dedup id", one(plain, other), func(b []byte) {
			copy(b[bytes.Index(b, []byte("dedup-ix")):], batch.DedupHeader)
		}),
		change("dedup_first", "the first of two records has a dedup id, the second other headers", one(other, other), func(b []byte) {
			copy(b[bytes.Index(b, []byte("dedup-ix")):], batch.DedupHeader)
		}),
		change("dedup_last", "a dedup id in a batch of two, which says so", one(plain, other), func(b []byte) {
			copy(b[bytes.Index(b, []byte("dedup-ix")):], batch.DedupHeader)
			b[59] = 1
		}),
		stored("dedup_stored_two", "a stored batch of two that tells of a dedup id", one(plain, plain)),
		stored("dedup_stored_zstd", "a stored batch that is compressed and tells of a dedup id", build(t, 0, 0, batch.Zstd, compressible()[0])),
		change("dedup_zstd", "a dedup id that cannot be read", build(t, 0, 0, batch.Zstd, compressible()[0]), func(b []byte) { b[59] = 1 }),
		change("dedup_empty", "a dedup id of no bytes", one(named), func(b []byte) {
			at := headers + 1 + 1 + len(batch.DedupHeader) // count, name
			copy(b[at:], []byte{0})
			// What was the id becomes the beginning of the value.
			b[headers-3] += 2
			b[headers-1] -= 2
		}),
		change("dedup_long", "a dedup id of 129 bytes", one(long), func(b []byte) {
			at := headers + 1 + 1 + 1 + len(batch.DedupHeader) // sizes of two bytes now: one more before the headers
			b[at]++
			b[headers-3]--
			b[headers-1]++
		}),
	}
}
