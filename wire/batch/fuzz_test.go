// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"margay.dev/wire/batch"
)

// seedVectors starts a fuzz target from every golden vector of one kind: they already sit on the edges of the rules.
// The targets make sizes and checksums right again, so that damage gets past them to the code behind.
func seedVectors(f *testing.F, prefixes ...string) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join(vectorDir, "batch", "*.hex"))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, p := range paths {
		for _, prefix := range prefixes {
			if strings.HasPrefix(filepath.Base(p), prefix) {
				f.Add(readHex(f, p))
			}
		}
	}
}

// FuzzCheckProduced: whatever a producer sends, checking and reading it survives; what is accepted is in the one
// form a builder writes, so equal batches have equal bytes.
func FuzzCheckProduced(f *testing.F) {
	seedVectors(f, "produced_", "refused_")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batch.HeaderSize {
			clear(raw[:48])
			reseal(reframe(raw), false)
		}
		b, err := batch.CheckProduced(raw, batch.Limits{})
		if err != nil {
			return
		}
		if walkErr := walkMetas(b); walkErr != nil {
			t.Fatalf("accepted, but its metas cannot be read: %v", walkErr)
		}
		var records []batch.Record
		boundAllocation(t, uint64(64*len(raw)+8*b.PlainSize()), func() { records, err = readAll(b) })
		if err != nil {
			if !b.Compressed() {
				t.Fatalf("accepted, but its records cannot be read: %v", err)
			}
			return
		}
		if again := rebuild(t, b, records); !b.Compressed() && !bytes.Equal(again, b) {
			t.Fatalf("%x is written as %x", []byte(b), []byte(again))
		}
	})
}

// FuzzCheckStored: whatever lies on a disk behind good checksums, reading it survives within its bounds.
func FuzzCheckStored(f *testing.F) {
	seedVectors(f, "stored_", "produced_", "control_", "refused_")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batch.HeaderSize {
			copy(raw[4:], "MGB1")
			reseal(reframe(raw), true)
		}
		size, peekErr := batch.Peek(raw)
		b, err := batch.CheckStored(raw)
		if err != nil {
			return
		}
		if peekErr != nil || size != b.Size() || len(b) != size {
			t.Fatalf("peeked %d, %v; checked %d", size, peekErr, b.Size())
		}
		boundAllocation(t, uint64(64*len(raw)+8*b.PlainSize()), func() {
			_ = walkMetas(b)
			_, _ = readCarried(b)
			_, _ = b.Entries()
			_, _ = b.CheckpointPart()
			if s, ok, err := b.Settlement(); err != nil || ok != b.HasSettlement() || ok && (s.Group == 0 || len(s.Tokens) == 0) {
				t.Fatalf("accepted, but its settlement is %+v, %v", s, err)
			}
		})
		before := bytes.Clone(b[48:])
		b.Assign(batch.Assigned{Sequence: b.Sequence() + 1, BaseOffset: b.BaseOffset(), AppendTime: b.AppendTime()})
		if _, err := batch.CheckStored(b); err != nil || !bytes.Equal(before, b[48:]) {
			t.Fatalf("assigning again: %v", err)
		}
	})
}

// FuzzLeaderBatches: a carried or expired batch that can be read is written again with the same bytes.
func FuzzLeaderBatches(f *testing.F) {
	seedVectors(f, "stored_carried", "stored_expired", "refused_carried", "refused_expired")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batch.HeaderSize {
			copy(raw[4:], "MGB1")
			reseal(reframe(raw), true)
		}
		b, err := batch.CheckStored(raw)
		if err != nil || !b.IsCarried() && !b.IsExpired() || b.Compressed() {
			return
		}
		records, err := readCarried(b)
		if err != nil {
			return
		}
		for _, r := range records[:min(len(records), 8)] { // each walks the batch
			if !b.IsCarried() {
				break
			}
			s, ok, err := batch.SliceCarried(b, r.Offset)
			if err != nil || !ok {
				t.Fatalf("offset %d was read and is not cut: %v, %v", r.Offset, ok, err)
			}
			if s, err = batch.CheckSlice(s); err != nil {
				t.Fatalf("offset %d is cut to %x, which is refused: %v", r.Offset, []byte(s), err)
			}
			if back, offsets, err := readSlice(s); err != nil || len(back) != 1 || offsets[0] != r.Offset {
				t.Fatalf("offset %d is cut to %x, which reads as %+v, %v", r.Offset, []byte(s), back, err)
			}
		}
		var again batch.Batch
		switch scheduled := slices.ContainsFunc(records, func(r batch.Carried) bool { return r.TTL > 0 || r.Delay > 0 || r.Priority > 0 }); {
		case b.IsExpired():
			keys := make([][]byte, len(records))
			for i, r := range records {
				if r.Timestamp != b.FirstTimestamp() {
					return // no leader writes that
				}
				keys[i] = r.Key
			}
			again = batch.BuildExpired(keys, b.FirstTimestamp())
		case scheduled != b.Scheduled():
			return // nor that
		default:
			again = carried(t, batch.None, records...)
		}
		if !bytes.Equal(again[48:], b[48:]) {
			t.Fatalf("%x is written as %x", []byte(b[48:]), []byte(again[48:]))
		}
	})
}

// FuzzEntries: a control batch that can be read is written again with the same bytes.
func FuzzEntries(f *testing.F) {
	seedVectors(f, "control_", "refused_entry", "refused_control")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batch.HeaderSize {
			copy(raw[4:], "MGB1")
			reseal(reframe(raw), true)
		}
		b, err := batch.CheckStored(raw)
		if err != nil || !b.IsControl() {
			return
		}
		var entries []batch.Entry
		boundAllocation(t, uint64(64*len(raw)), func() { entries, err = b.Entries() })
		if err != nil {
			return
		}
		again := batch.BuildControl(entries...)
		if !bytes.Equal(again[48:], b[48:]) {
			t.Fatalf("%x is written as %x", []byte(b[48:]), []byte(again[48:]))
		}
		for _, e := range entries {
			if back, err := batch.BuildControl(e).Entries(); err != nil || !reflect.DeepEqual(back, []batch.Entry{e}) {
				t.Fatalf("%+v came back as %+v, %v", e, back, err)
			}
		}
	})
}

// reframe makes the sizes of the header say what raw is, where they can.
func reframe(raw []byte) []byte {
	u32 := binary.LittleEndian
	u32.PutUint32(raw[52:], uint32(len(raw)))
	meta := u32.Uint32(raw[92:])
	if body := len(raw) - batch.HeaderSize - int(meta); body >= 0 && raw[58]&3 == 0 {
		u32.PutUint32(raw[88:], uint32(body))
	}
	return raw
}

func walkMetas(b batch.Batch) error {
	metas := b.Metas()
	var m batch.Meta
	for {
		if ok, err := metas.Next(&m); err != nil || !ok {
			return err
		}
	}
}

func rebuild(t *testing.T, b batch.Batch, records []batch.Record) batch.Batch {
	t.Helper()
	builder := batch.NewBuilder(batch.Limits{})
	for _, r := range records {
		if err := builder.Add(r); err != nil {
			t.Fatalf("accepted %+v, but would not write it: %v", r, err)
		}
	}
	if s, ok, err := b.Settlement(); err != nil {
		t.Fatalf("accepted, but its settlement cannot be read: %v", err)
	} else if ok {
		if err := builder.SetSettlement(s); err != nil {
			t.Fatalf("accepted %+v, but would not write it: %v", s, err)
		}
	}
	out, err := builder.Build(b.ProducerID(), b.ProducerSequence(), batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// boundAllocation fails when fn allocates far beyond what its input can account for. The slack is what coders of the
// pool take once.
func boundAllocation(t *testing.T, most uint64, fn func()) {
	t.Helper()
	const slack = 16 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > most+slack {
		t.Fatalf("allocated %d bytes, at most %d expected", grown, most+slack)
	}
}
