// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

// reseal makes the checksums right again, so that a test meets the rule behind them.
func reseal(b []byte, assigned bool) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(b[48:], crc32.Checksum(b[52:], table))
	if assigned {
		binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:48], table))
	}
	return b
}

func TestBuilderRefuses(t *testing.T) {
	many := make([]batch.Header, batch.MaxHeaders+1)
	for name, c := range map[string]struct {
		rec  batch.Record
		want error
	}{
		"key":                  {batch.Record{Key: make([]byte, batch.MaxKey+1)}, batch.ErrTooLarge},
		"headers":              {batch.Record{Headers: many}, batch.ErrTooLarge},
		"header bytes":         {batch.Record{Headers: []batch.Header{{Value: make([]byte, batch.MaxHeaderBytes)}}}, batch.ErrTooLarge},
		"record":               {batch.Record{Value: make([]byte, batch.MaxRecord+1)}, batch.ErrTooLarge},
		"record with overhead": {batch.Record{Value: make([]byte, batch.MaxRecord)}, batch.ErrTooLarge},
		"negative delay":       {batch.Record{Delay: -1}, batch.ErrSchedule},
		"endless TTL":          {batch.Record{TTL: math.MaxInt64}, batch.ErrSchedule},
		"expired before due":   {batch.Record{Delay: time.Second, TTL: time.Second}, batch.ErrSchedule},
		"timestamp overflow":   {batch.Record{Timestamp: math.MinInt64}, batch.ErrTimestamp},
	} {
		t.Run(name, func(t *testing.T) {
			b := batch.NewBuilder(batch.Limits{})
			if err := b.Add(batch.Record{Value: []byte("first"), Timestamp: 1 << 62}); err != nil {
				t.Fatal(err)
			}
			size := b.Size()
			if err := b.Add(c.rec); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if b.Size() != size || b.Len() != 1 {
				t.Fatal("a refused record left something behind")
			}
		})
	}
}

func TestBuilderIsFull(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{Batch: 200, Records: 3})
	rec := batch.Record{Value: make([]byte, 60)}
	if err := b.Add(rec); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(rec); !errors.Is(err, batch.ErrFull) {
		t.Fatalf("by size: %v", err)
	}
	for range 2 {
		if err := b.Add(batch.Record{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(batch.Record{}); !errors.Is(err, batch.ErrFull) {
		t.Fatalf("by count: %v", err)
	}
	out, err := b.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	if out.Size() != b.Size() || len(out) != b.Size() {
		t.Fatalf("size %d, said %d", out.Size(), b.Size())
	}
	if _, err := batch.CheckProduced(out, batch.Limits{Batch: 200, Records: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := batch.CheckProduced(out, batch.Limits{Records: 2}); !errors.Is(err, batch.ErrLimit) {
		t.Fatalf("too many records: %v", err)
	}
	b.Reset()
	if _, err := b.Build(0, 0, batch.None); !errors.Is(err, batch.ErrCount) {
		t.Fatalf("empty: %v", err)
	}
}

func TestLargestRecordFits(t *testing.T) {
	rec := batch.Record{Value: make([]byte, batch.MaxBatch-batch.HeaderSize-6)}
	b := build(t, 0, 0, batch.None, rec)
	if len(b) != batch.MaxBatch {
		t.Fatalf("size %d", len(b))
	}
	if _, err := batch.CheckProduced(b, batch.Limits{}); err != nil {
		t.Fatal(err)
	}
}

func sample(t testing.TB, c batch.Compression) batch.Batch {
	return build(t, 7, 1, c,
		batch.Record{Key: []byte("k"), Value: bytes.Repeat([]byte("value "), 50), Timestamp: 1000, Delay: time.Second, TTL: time.Minute},
		batch.Record{Key: []byte("k"), Timestamp: 900, Headers: []batch.Header{{Key: "h", Value: []byte("v")}}},
		batch.Record{Value: []byte{}, Timestamp: 1100})
}

func TestCheckProducedRefuses(t *testing.T) {
	const meta = batch.HeaderSize
	u32 := binary.LittleEndian.PutUint32
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"short header":     {func(b []byte) []byte { return b[:95] }, batch.ErrShort},
		"short":            {func(b []byte) []byte { return b[:len(b)-1] }, batch.ErrShort},
		"trailing byte":    {func(b []byte) []byte { return append(b, 0) }, batch.ErrSize},
		"assigned":         {func(b []byte) []byte { b[47] = 1; return b }, batch.ErrAssigned},
		"version":          {func(b []byte) []byte { b[56] = 2; return b }, batch.ErrVersion},
		"reserved":         {func(b []byte) []byte { b[57] = 1; return b }, batch.ErrAttributes},
		"compression 2":    {func(b []byte) []byte { b[58] = 2; return b }, batch.ErrAttributes},
		"control":          {func(b []byte) []byte { b[58] |= 4; return b }, batch.ErrAttributes},
		"checkpoint":       {func(b []byte) []byte { b[58] |= 8; return b }, batch.ErrAttributes},
		"carried":          {func(b []byte) []byte { b[58] |= 32; return b }, batch.ErrAttributes},
		"settlement":       {func(b []byte) []byte { b[58] |= 64; return b }, batch.ErrAttributes},
		"unknown":          {func(b []byte) []byte { b[59] |= 128; return b }, batch.ErrAttributes},
		"no records":       {func(b []byte) []byte { u32(b[60:], 0); return b }, batch.ErrCount},
		"one record less":  {func(b []byte) []byte { u32(b[60:], 2); return b }, batch.ErrSize},
		"one record more":  {func(b []byte) []byte { u32(b[60:], 4); return b }, batch.ErrSize},
		"huge count":       {func(b []byte) []byte { u32(b[60:], math.MaxUint32); return b }, batch.ErrCount},
		"producer, no seq": {func(b []byte) []byte { b[72] = 0; return b }, batch.ErrProducer},
		"seq, no producer": {func(b []byte) []byte { b[64] = 0; return b }, batch.ErrProducer},
		"plain size":       {func(b []byte) []byte { b[88]++; return b }, batch.ErrSize},
		"meta size":        {func(b []byte) []byte { u32(b[92:], math.MaxUint32); return b }, batch.ErrSize},
		"record flag":      {func(b []byte) []byte { b[meta] |= 64; return b }, batch.ErrAttributes},
		"first delta":      {func(b []byte) []byte { b[meta+1] = 2; return b }, batch.ErrTimestamp},
		"key size":         {func(b []byte) []byte { b[meta+2] = 127; return b }, batch.ErrSize},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.change(bytes.Clone(sample(t, batch.None)))
			if len(b) >= batch.HeaderSize {
				if int(binary.LittleEndian.Uint32(b[52:])) == len(b) {
					reseal(b, false)
				}
			}
			_, err := batch.CheckProduced(b, batch.Limits{})
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			var f *batch.FormatError
			if !errors.As(err, &f) || f.Op == "" {
				t.Fatalf("%v does not say where", err)
			}
		})
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	for _, c := range []batch.Compression{batch.None, batch.Zstd} {
		b := sample(t, c)
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			if _, err := batch.CheckProduced(b, batch.Limits{}); err == nil {
				t.Fatalf("produced: bit %d", i)
			}
			b[i/8] ^= 1 << (i % 8)
		}
		b.Assign(batch.Assigned{Sequence: 1, BaseOffset: 2, Generation: 3, AppendTime: 4, Flushed: 1})
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			if _, err := batch.CheckStored(b); err == nil {
				t.Fatalf("stored: bit %d", i)
			}
			b[i/8] ^= 1 << (i % 8)
		}
		for n := range len(b) {
			if _, err := batch.CheckStored(b[:n]); !errors.Is(err, batch.ErrShort) {
				t.Fatalf("cut to %d: %v", n, err)
			}
		}
	}
}

// TestOverlongVarint replaces a one-byte length by its two-byte form: same meaning, other bytes, refused.
func TestOverlongVarint(t *testing.T) {
	b := build(t, 0, 0, batch.None, batch.Record{Value: []byte("v")})
	const at = batch.HeaderSize + 2
	long := append(bytes.Clone(b[:at]), 0x81, 0x00)
	long = append(long, b[at+1:]...)
	binary.LittleEndian.PutUint32(long[52:], uint32(len(long)))
	long[92]++
	if _, err := batch.CheckProduced(reseal(long, false), batch.Limits{}); !errors.Is(err, batch.ErrVarint) {
		t.Fatalf("got %v", err)
	}
}

func TestScheduleIsCheckedOnArrival(t *testing.T) {
	b := build(t, 0, 0, batch.None, batch.Record{Value: []byte("v"), Delay: 3 * time.Microsecond, TTL: 5 * time.Microsecond})
	const delayAt, ttlAt = batch.HeaderSize + 2, batch.HeaderSize + 3
	for name, change := range map[string]func(b []byte){
		"TTL is delay":    func(b []byte) { b[ttlAt] = 3 },
		"TTL below delay": func(b []byte) { b[ttlAt] = 2 },
		"zero TTL":        func(b []byte) { b[ttlAt] = 0 },
		"zero delay":      func(b []byte) { b[delayAt] = 0 },
	} {
		c := bytes.Clone(b)
		change(c)
		if _, err := batch.CheckProduced(reseal(c, false), batch.Limits{}); !errors.Is(err, batch.ErrSchedule) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	bomb := build(t, 0, 0, batch.Zstd, batch.Record{Value: make([]byte, 4<<20)})
	if !bomb.Compressed() || len(bomb) > 4096 {
		t.Fatalf("%d bytes", len(bomb))
	}
	// The body claims 1000 plain bytes and holds 4 MiB.
	lying := bytes.Clone(bomb[:batch.HeaderSize])
	lying = append(lying, 0, 0, 0xe8, 0x07)
	lying = append(lying, bomb[batch.HeaderSize+6:]...)
	binary.LittleEndian.PutUint32(lying[52:], uint32(len(lying)))
	binary.LittleEndian.PutUint32(lying[88:], 1000)
	binary.LittleEndian.PutUint32(lying[92:], 4)
	b, err := batch.CheckProduced(reseal(lying, false), batch.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(b); !errors.Is(err, batch.ErrCompression) {
		t.Fatalf("got %v", err)
	}
	if err := b.VerifyRecords(); !errors.Is(err, batch.ErrCompression) {
		t.Fatalf("got %v", err)
	}
}

func TestControlAttributesMatchEntries(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"start without part": func(b []byte) { b[58] |= 16 },
		"part not said":      func(b []byte) { b[58] = 4 },
	} {
		b := []byte(batch.BuildControl(batch.CheckpointPart{Index: 1, Total: 3}))
		change(b)
		batch.Batch(b).Assign(batch.Assigned{})
		s, err := batch.CheckStored(reseal(b, true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Entries(); !errors.Is(err, batch.ErrEntry) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
