// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

func build(t testing.TB, producerID, producerSeq uint64, c batch.Compression, records ...batch.Record) batch.Batch {
	t.Helper()
	b := batch.NewBuilder(batch.Limits{})
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Build(producerID, producerSeq, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readAll(b batch.Batch) ([]batch.Record, error) {
	var out []batch.Record
	r := b.Records()
	for {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil || !ok {
			return out, err
		}
		out = append(out, rec.Clone())
	}
}

func drawRecord(t *rapid.T) batch.Record {
	r := batch.Record{
		Key:       optionalBytes(t, "key"),
		Value:     optionalBytes(t, "value"),
		Timestamp: rapid.Int64Range(-1<<62, 1<<62-1).Draw(t, "timestamp"),
	}
	if rapid.Bool().Draw(t, "delayed") {
		r.Delay = time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "delay")) * time.Microsecond
	}
	if rapid.Bool().Draw(t, "expires") {
		r.TTL = r.Delay + time.Duration(rapid.Int64Range(1, 1<<50).Draw(t, "ttl"))*time.Microsecond
	}
	r.Priority = rapid.Uint8Max(batch.MaxPriority).Draw(t, "priority")
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		h := batch.Header{
			Key:   rapid.StringN(0, 10, 40).Draw(t, "header"),
			Value: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "header value"),
		}
		r.Headers = append(r.Headers, h)
	}
	return r
}

func optionalBytes(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, "no "+name) {
		return nil
	}
	p := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, name)
	return append([]byte{}, p...)
}

func drawRecords(t *rapid.T) []batch.Record {
	return rapid.SliceOfN(rapid.Custom(drawRecord), 1, 20).Draw(t, "records")
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		compression := rapid.SampledFrom([]batch.Compression{batch.None, batch.Zstd}).Draw(t, "compression")
		id := rapid.Uint64Min(1).Draw(t, "producer")
		seq := rapid.Uint64Min(1).Draw(t, "sequence")
		builder := batch.NewBuilder(batch.Limits{})
		for _, r := range records {
			if err := builder.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		sent, err := builder.Build(id, seq, compression)
		if err != nil {
			t.Fatal(err)
		}
		b, err := batch.CheckProduced(sent, batch.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		produced := bytes.Clone(b[48:])
		a := batch.Assigned{
			Sequence: rapid.Uint64().Draw(t, "s"), BaseOffset: rapid.Uint64Max(1<<63).Draw(t, "o"),
			Generation: rapid.Uint64().Draw(t, "g"), AppendTime: rapid.Int64().Draw(t, "t"), Flushed: rapid.Uint64().Draw(t, "f"),
		}
		b.Assign(a)
		if !bytes.Equal(produced, b[48:]) {
			t.Fatal("assigning changed what the producer sent")
		}
		stored, err := batch.CheckStored(append(bytes.Clone(b), 1, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		got := batch.Assigned{
			Sequence: stored.Sequence(), BaseOffset: stored.BaseOffset(), Generation: stored.Generation(),
			AppendTime: stored.AppendTime(), Flushed: stored.Flushed(),
		}
		if got != a || stored.ProducerID() != id || stored.ProducerSequence() != seq || stored.Size() != len(sent) ||
			stored.Count() != len(records) || stored.NextOffset() != a.BaseOffset+uint64(len(records)) {
			t.Fatalf("header %+v differs from %+v", got, a)
		}
		back, err := readAll(stored)
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, back, records)
		sameMetas(t, stored, records)
		if err := stored.VerifyRecords(); err != nil {
			t.Fatal(err)
		}
	})
}

func sameRecords(t interface{ Fatalf(string, ...any) }, got, want []batch.Record) {
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		same := sameBytes(g.Key, w.Key) && sameBytes(g.Value, w.Value) && g.Timestamp == w.Timestamp &&
			g.Delay == w.Delay && g.TTL == w.TTL && g.Priority == w.Priority && len(g.Headers) == len(w.Headers)
		for j := 0; same && j < len(w.Headers); j++ {
			same = g.Headers[j].Key == w.Headers[j].Key && bytes.Equal(g.Headers[j].Value, w.Headers[j].Value)
		}
		if !same {
			t.Fatalf("record %d is %+v, want %+v", i, g, w)
		}
	}
}

// sameBytes tells nil from empty: a tombstone is not an empty value.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameMetas(t interface{ Fatalf(string, ...any) }, b batch.Batch, want []batch.Record) {
	metas := b.Metas()
	var m batch.Meta
	for i := 0; ; i++ {
		ok, err := metas.Next(&m)
		if err != nil {
			t.Fatalf("meta %d: %v", i, err)
		}
		if !ok {
			if i != len(want) {
				t.Fatalf("%d metas, want %d", i, len(want))
			}
			return
		}
		w := want[i]
		if !sameBytes(m.Key, w.Key) || m.Null != (w.Value == nil) || m.Timestamp != w.Timestamp || m.Delay != w.Delay ||
			m.TTL != w.TTL || m.Priority != w.Priority || m.ValueSize != len(w.Value) || metas.Offset() != b.BaseOffset()+uint64(i) {
			t.Fatalf("meta %d is %+v, want %+v", i, m, w)
		}
	}
}

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Custom(drawEntry), 1, 8).Draw(t, "entries")
		b := batch.BuildControl(entries...)
		b.Assign(batch.Assigned{Sequence: 5, BaseOffset: 17, Generation: 2})
		stored, err := batch.CheckStored(b)
		if err != nil {
			t.Fatal(err)
		}
		if !stored.IsControl() || stored.NextOffset() != 17 || stored.IsCheckpoint() {
			t.Fatal("control batch does not say so, or takes offsets")
		}
		back, err := stored.Entries()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, entries) {
			t.Fatalf("entries %+v, want %+v", back, entries)
		}
		if recs, err := readAll(stored); err != nil || len(recs) != 0 {
			t.Fatalf("a control batch has %d records, %v", len(recs), err)
		}
	})
}

func drawEntry(t *rapid.T) batch.Entry {
	u := rapid.Uint64()
	switch kind := rapid.IntRange(0, 11).Draw(t, "kind"); kind {
	case 7, 8, 9, 10, 11:
		return drawGroupEntry(t, kind)
	case 0:
		e := batch.Opening{Generation: u.Draw(t, "g"), Leader: rapid.String().Draw(t, "leader")}
		for range rapid.IntRange(0, 5).Draw(t, "replicas") {
			e.Replicas = append(e.Replicas, rapid.String().Draw(t, "replica"))
		}
		if e.Lossy = rapid.Bool().Draw(t, "lossy"); e.Lossy {
			e.LossySequence, e.LossyOffset = u.Draw(t, "s"), u.Draw(t, "o")
		}
		return e
	case 1:
		return batch.LogStart{Sequence: u.Draw(t, "s"), Offset: u.Draw(t, "o")}
	case 2:
		e := batch.Producer{
			ID: u.Draw(t, "id"), LastSequence: u.Draw(t, "s"), Generation: u.Draw(t, "g"),
			LastAppend: rapid.Int64().Draw(t, "t"),
		}
		for range rapid.IntRange(0, batch.MaxWindow).Draw(t, "window") {
			e.Window = append(e.Window, batch.Stored{
				Sequence: u.Draw(t, "ws"), BaseOffset: u.Draw(t, "wo"), Count: rapid.Uint32().Draw(t, "wc"),
				AppendTime: rapid.Int64().Draw(t, "wt"), Generation: u.Draw(t, "wg"),
			})
		}
		return e
	case 3:
		return batch.Cursor{
			Name: rapid.String().Draw(t, "name"), Offset: u.Draw(t, "o"), Generation: u.Draw(t, "g"), Epoch: u.Draw(t, "e"),
			Updated: rapid.Int64().Draw(t, "t"), Removed: rapid.Bool().Draw(t, "removed"),
		}
	case 4:
		var e batch.Dedup
		for range rapid.IntRange(0, 5).Draw(t, "ids") {
			e.Stored = append(e.Stored, batch.DedupStored{
				ID: rapid.String().Draw(t, "id"), Offset: u.Draw(t, "o"), AppendTime: rapid.Int64().Draw(t, "t"),
			})
		}
		return e
	case 5:
		e := batch.Last{
			ID: u.Draw(t, "id"), Grace: time.Duration(rapid.Uint32().Draw(t, "grace")) * time.Millisecond,
			Removed: rapid.Bool().Draw(t, "removed"),
		}
		if !e.Removed {
			e.Batch = rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "batch")
		}
		return e
	default:
		var e batch.Generations
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			e.Table = append(e.Table, batch.GenerationStart{Generation: u.Draw(t, "g"), Sequence: u.Draw(t, "s"), Offset: u.Draw(t, "o")})
		}
		return e
	}
}

func TestWindowKeepsTheNewest(t *testing.T) {
	p := batch.Producer{ID: 1}
	for i := range uint64(batch.MaxWindow + 10) {
		p.Window = append(p.Window, batch.Stored{Sequence: i + 1, BaseOffset: i * 3, Count: 3, AppendTime: 1e15, Generation: 4})
	}
	raw := p.AppendTo(nil)
	if len(raw) > 6*batch.MaxWindow {
		t.Errorf("a contiguous window takes %d bytes", len(raw))
	}
	back, err := batch.BuildControl(p).Entries()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back[0].(batch.Producer).Window, p.Window[10:]) {
		t.Fatal("the window is not the newest entries")
	}
}

func TestCheckpointSpreadsOverBatches(t *testing.T) {
	entries := []batch.Entry{batch.Opening{Generation: 1, Leader: "a"}}
	for i := range 2000 {
		p := batch.Producer{ID: uint64(i + 1), Window: make([]batch.Stored, batch.MaxWindow)}
		entries = append(entries, p)
	}
	parts := batch.BuildCheckpoint(entries...)
	if len(parts) < 2 {
		t.Fatalf("%d parts", len(parts))
	}
	var back []batch.Entry
	for i, p := range parts {
		p.Assign(batch.Assigned{Sequence: uint64(i)})
		if _, err := batch.CheckStored(p); err != nil {
			t.Fatal(err)
		}
		part, ok := p.CheckpointPart()
		if !ok || part.Index != uint32(i) || part.Total != uint32(len(parts)) || p.IsCheckpointStart() != (i == 0) ||
			part.Last() != (i == len(parts)-1) {
			t.Fatalf("part %d says %+v", i, part)
		}
		es, err := p.Entries()
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, es[1:]...)
	}
	if !reflect.DeepEqual(back, entries) {
		t.Fatal("a checkpoint does not hold what it was built of")
	}
	if empty := batch.BuildCheckpoint(); len(empty) != 1 {
		t.Fatalf("an empty checkpoint has %d parts", len(empty))
	}
}

func TestUnknownEntryIsNamed(t *testing.T) {
	b := batch.BuildControl(foreignEntry{})
	b.Assign(batch.Assigned{})
	if _, err := b.Entries(); !errors.Is(err, batch.ErrUnknownEntry) {
		t.Fatalf("got %v", err)
	}
}

type foreignEntry struct{}

func (foreignEntry) Type() batch.EntryType      { return 99 }
func (foreignEntry) AppendTo(dst []byte) []byte { return append(dst, 1, 2, 3) }

func TestLogID(t *testing.T) {
	id := batch.NewLogID()
	back, err := batch.ParseLogID(id.String())
	if err != nil || back != id || id.IsZero() || id == batch.NewLogID() {
		t.Fatalf("%v came back as %v, %v", id, back, err)
	}
	for _, s := range []string{"", "12", id.String() + "0", id.String()[:31] + "g"} {
		if _, err := batch.ParseLogID(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestPositionGenerationGoesFirst(t *testing.T) {
	short, long := batch.Position{Generation: 3, Length: 1}, batch.Position{Generation: 2, Length: 9}
	if short.Compare(long) != 1 || long.Compare(short) != -1 || short.Compare(short) != 0 ||
		long.Compare(batch.Position{Generation: 2, Length: 8}) != 1 {
		t.Fatal("order is wrong")
	}
}
