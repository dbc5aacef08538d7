// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

func identified(id string) batch.Record {
	return batch.Record{Value: bytes.Repeat([]byte("v"), 500), Headers: []batch.Header{{Key: batch.DedupHeader, Value: []byte(id)}, {Key: "a"}}}
}

func TestDedupIDStandsAlone(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{})
	plain := batch.Record{Value: []byte("v")}
	for name, order := range map[string][2]batch.Record{
		"behind another": {plain, identified("x")}, "before another": {identified("x"), plain}, "two": {identified("x"), identified("y")},
	} {
		b.Reset()
		if err := b.Add(order[0]); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(order[1]); !errors.Is(err, batch.ErrFull) || b.Len() != 1 {
			t.Errorf("%s: %v", name, err)
		}
		first, err := b.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := b.Add(order[1]); err != nil {
			t.Errorf("%s: alone: %v", name, err)
		}
		second, err := b.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		for i, out := range []batch.Batch{first, second} {
			if _, err := batch.CheckProduced(out, batch.Limits{}); err != nil {
				t.Errorf("%s: batch %d: %v", name, i, err)
			}
			if has := len(order[i].Headers) > 0; has != (out.DedupID() != nil) {
				t.Errorf("%s: batch %d has id %q", name, i, out.DedupID())
			}
		}
	}
}

func TestDedupIDIsReadWithoutTheRecord(t *testing.T) {
	r := identified("order-17")
	r.Key, r.TTL = []byte("k"), time.Minute
	b := build(t, 3, 1, batch.Zstd, r)
	if b.Compressed() || string(b.DedupID()) != "order-17" || !b.Scheduled() {
		t.Fatalf("compressed %v, id %q, scheduled %v", b.Compressed(), b.DedupID(), b.Scheduled())
	}
	if n := testing.AllocsPerRun(100, func() { _ = b.DedupID() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := batch.HeaderSize; i < len(b); i++ { // damage is somebody else's to find, and never a panic
		for _, x := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			c := bytes.Clone(b)
			c[i] = x
			_ = batch.Batch(c).DedupID()
		}
	}
}

func TestDedupIDHasASize(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{})
	for _, n := range []int{0, batch.MaxDedupID + 1} {
		if err := b.Add(identified(string(make([]byte, n)))); !errors.Is(err, batch.ErrDedup) || b.Len() != 0 {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, n := range []int{1, batch.MaxDedupID} {
		b.Reset()
		if err := b.Add(identified(string(make([]byte, n)))); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestScheduledSaysWhatIsSo(t *testing.T) {
	plain := batch.Record{Value: bytes.Repeat([]byte("v"), 300)}
	delayed, expiring := plain, plain
	delayed.Delay, expiring.TTL = time.Microsecond, time.Nanosecond
	for _, c := range []struct {
		records []batch.Record
		want    bool
	}{
		{[]batch.Record{plain}, false},
		{[]batch.Record{plain, delayed, plain}, true},
		{[]batch.Record{expiring}, true},
	} {
		for _, compression := range []batch.Compression{batch.None, batch.Zstd} {
			b := build(t, 0, 0, compression, c.records...)
			if _, err := batch.CheckProduced(b, batch.Limits{}); err != nil || b.Scheduled() != c.want {
				t.Errorf("scheduled %v, want %v: %v", b.Scheduled(), c.want, err)
			}
			b[58] ^= 0x80
			if _, err := batch.CheckProduced(reseal(b, false), batch.Limits{}); !errors.Is(err, batch.ErrSchedule) {
				t.Errorf("the opposite: %v", err)
			}
		}
	}
}

func TestBuilderForgetsAttributes(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{})
	r := identified("x")
	r.TTL = time.Second
	if err := b.Add(r); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := errors.Join(b.Add(batch.Record{}), b.Add(batch.Record{})); err != nil {
		t.Fatal(err)
	}
	out, err := b.Build(0, 0, batch.None)
	if err != nil || out.Attributes() != 0 {
		t.Fatalf("attributes %x, %v", out.Attributes(), err)
	}
}

func TestDedupsSpreadOverEntries(t *testing.T) {
	stored := make([]batch.DedupStored, 100_000)
	for i := range stored {
		stored[i] = batch.DedupStored{ID: string(bytes.Repeat([]byte{byte(i)}, batch.MaxDedupID)), Offset: uint64(i), AppendTime: start}
	}
	var back []batch.DedupStored
	for _, part := range batch.BuildCheckpoint(batch.Dedups(stored)...) {
		part.Assign(batch.Assigned{})
		if _, err := batch.CheckStored(part); err != nil {
			t.Fatal(err)
		}
		entries, err := part.Entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries[1:] {
			d, ok := e.(batch.Dedup)
			if !ok {
				t.Fatalf("entry %T", e)
			}
			back = append(back, d.Stored...)
		}
	}
	if !reflect.DeepEqual(back, stored) {
		t.Fatal("ids do not come back as they were")
	}
	if batch.Dedups(nil) != nil {
		t.Error("entries for nothing")
	}
}

// TestLastGraceStaysInRange: an entry that could not be read again would close the log for good.
func TestLastGraceStaysInRange(t *testing.T) {
	for _, d := range []time.Duration{-time.Hour, 1<<63 - 1} {
		if _, err := batch.BuildControl(batch.Last{ID: 1, Grace: d, Removed: true}).Entries(); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}
