// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"errors"
	"math"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

func build(t testing.TB, a batch.Assigned, recs ...batch.Record) batch.Batch {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, r := range recs {
		if err := bl.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	b.Assign(a)
	return b
}

func put(key, value string) batch.Record {
	return batch.Record{Key: []byte(key), Value: []byte(value)}
}

func tombstone(key string) batch.Record { return batch.Record{Key: []byte(key)} }

func mustApply(t testing.TB, x *Index, bs ...batch.Batch) {
	t.Helper()
	for _, b := range bs {
		if err := x.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
}

func mustGet(t testing.TB, x *Index, key string) Entry {
	t.Helper()
	e, ok := x.Get([]byte(key))
	if !ok {
		t.Fatalf("key %q is not there", key)
	}
	return e
}

func TestABatchIsLaidOverTheIndex(t *testing.T) {
	x := New()
	expiring := put("c", "3")
	expiring.TTL = time.Second
	first := build(t, batch.Assigned{Sequence: 7, BaseOffset: 40, AppendTime: 1_000_000},
		put("a", "1"), put("b", "2"), expiring, batch.Record{Value: []byte("no key")})
	mustApply(t, x, first)
	if a, b := mustGet(t, x, "a"), mustGet(t, x, "b"); a.Offset != 40 || b.Offset != 41 || a.Sequence != 7 || a.Until != 0 || a.Carried {
		t.Fatalf("got %+v and %+v", a, b)
	}
	if c := mustGet(t, x, "c"); c.Until != 2_000_000 {
		t.Fatalf("expires at %d, want a second after it was appended", c.Until)
	}
	mustApply(t, x, build(t, batch.Assigned{Sequence: 8, BaseOffset: 44}, tombstone("a"), put("b", "new"), tombstone("never there")))
	if _, ok := x.Get([]byte("a")); ok || mustGet(t, x, "b").Offset != 45 || x.Len() != 2 {
		t.Fatalf("%d keys are left, a there: %v", x.Len(), ok)
	}
	if seq, off := x.AsOf(); seq != 9 || off != 47 {
		t.Fatalf("as of sequence %d, offset %d", seq, off)
	}
	control := batch.BuildControl(batch.LogStart{})
	control.Assign(batch.Assigned{Sequence: 9, BaseOffset: 47})
	mustApply(t, x, control, first) // the first one again: below AsOf, so a is not back
	if seq, off := x.AsOf(); seq != 10 || off != 47 || x.Len() != 2 {
		t.Fatalf("as of sequence %d, offset %d with %d keys", seq, off, x.Len())
	}
}

func TestSizesOfABatchAddUpToItsBytes(t *testing.T) {
	x := New()
	b := build(t, batch.Assigned{}, put("a", "a long value, twice as long as the other"), put("b", "short"), put("c", ""))
	mustApply(t, x, b)
	if got, want := x.LiveBytes(), int64(b.Size()); got > want || got < want-3 {
		t.Fatalf("%d live bytes in a batch of %d, all of whose records are live", got, want)
	}
	if a, c := mustGet(t, x, "a"), mustGet(t, x, "c"); a.Size <= c.Size {
		t.Fatalf("a long value counts %d bytes, none counts %d", a.Size, c.Size)
	}
}

func TestADamagedBatchChangesNothing(t *testing.T) {
	x := New()
	good := build(t, batch.Assigned{Sequence: 1, BaseOffset: 1}, put("a", "1"), put("b", "2"))
	bad := append(batch.Batch(nil), good...)
	bad[batch.HeaderSize+5] = 0xff // flags of the second record, which no release knows
	before, err := x.Bytes(), x.Apply(bad)
	if _, ok := errors.AsType[*batch.FormatError](err); !ok {
		t.Fatalf("got %v", err)
	}
	if seq, _ := x.AsOf(); seq != 0 || x.Len() != 0 || x.Bytes() != before {
		t.Fatalf("as of %d with %d keys", seq, x.Len())
	}
}

func TestNoDeadlineOverflows(t *testing.T) {
	if got := until(math.MaxInt64-5, time.Second); got != math.MaxInt64 {
		t.Fatal(got)
	}
	if got := until(-1_000_000, time.Second); got != 1 {
		t.Fatal("an expiry at the epoch is told from none:", got)
	}
}

func TestACarriedRecordMovesAndStaysWhatItWas(t *testing.T) {
	x := New()
	old := put("a", "1")
	old.TTL = time.Second
	mustApply(t, x, build(t, batch.Assigned{Sequence: 1, BaseOffset: 10, AppendTime: 5_000_000}, old, put("b", "1"), put("c", "1")),
		build(t, batch.Assigned{Sequence: 2, BaseOffset: 13}, put("b", "newer"), tombstone("c")))
	carried, err := batch.BuildCarried([]batch.Carried{
		{Record: old, Offset: 10, AppendTime: 5_000_000},
		{Record: put("b", "1"), Offset: 11, AppendTime: 5_000_000}, // no longer the newest: the leader would not, but it does no harm
	}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	carried.Assign(batch.Assigned{Sequence: 3, BaseOffset: 15, AppendTime: 60_000_000})
	mustApply(t, x, carried)
	if a := mustGet(t, x, "a"); a.Offset != 10 || a.Sequence != 3 || a.Until != 6_000_000 || !a.Carried {
		t.Errorf("carried: %+v", a)
	}
	if b := mustGet(t, x, "b"); b.Offset != 13 || b.Sequence != 2 || b.Carried {
		t.Errorf("the higher offset lost: %+v", b)
	}
	if seq, off := x.AsOf(); seq != 4 || off != 15 {
		t.Errorf("as of sequence %d, offset %d: a carried batch takes no offset", seq, off)
	}
	for s, more := x.SweepBelow(2, 13), true; more; {
		_, more = s.Next(1)
	}
	if x.Len() != 2 {
		t.Errorf("%d keys are left, want the carried one and the newer", x.Len())
	}
	mustApply(t, x, build(t, batch.Assigned{Sequence: 4, BaseOffset: 15}, put("a", "2")))
	if a := mustGet(t, x, "a"); a.Offset != 15 || a.Carried || a.Until != 0 {
		t.Errorf("set again: %+v", a)
	}
}

func TestWhatExpiredIsGoneWhenItsTombstoneComes(t *testing.T) {
	x := New()
	short := put("a", "1")
	short.TTL = time.Microsecond
	mustApply(t, x, build(t, batch.Assigned{Sequence: 1, AppendTime: 1}, short, put("b", "1")))
	if x.NextDue() != 2 {
		t.Fatalf("next is due at %d", x.NextDue())
	}
	expired := batch.BuildExpired([][]byte{[]byte("a"), []byte("b")}, 3)
	expired.Assign(batch.Assigned{Sequence: 2, BaseOffset: 2, AppendTime: 3})
	again := build(t, batch.Assigned{Sequence: 3, BaseOffset: 4}, put("b", "2"))
	mustApply(t, x, expired, again)
	if _, ok := x.Get([]byte("a")); ok || x.Len() != 1 || x.NextDue() != 0 {
		t.Fatalf("a is there: %v; %d keys, next due at %d", ok, x.Len(), x.NextDue())
	}
}
