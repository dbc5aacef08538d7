// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

var logID = batch.LogID{0: 0xa1, 15: 0x1f}

func metaOf(s *Snapshot) Meta {
	m := Meta{Log: logID, Shard: 3, Generation: 2}
	m.Sequence, m.Offset = s.AsOf()
	return m
}

func encoded(t testing.TB, x *Index) []byte {
	t.Helper()
	s := x.Snapshot()
	defer s.Close()
	var b bytes.Buffer
	if err := s.Encode(&b, metaOf(s)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestASnapshotIsTheIndexAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, n := New(), naive{}
		x.SetAsOf(100, 100)
		type taken struct {
			s *Snapshot
			n naive
		}
		var open []taken
		check := func() {
			one := open[0]
			open = open[1:]
			defer one.s.Close()
			var b bytes.Buffer
			if err := one.s.Encode(&b, metaOf(one.s)); err != nil {
				t.Fatal(err)
			}
			y, m, err := Read(iotestOneByte(&b, rapid.Bool().Draw(t, "byte by byte")))
			if err != nil {
				t.Fatal(err)
			}
			if m != (Meta{Log: logID, Shard: 3, Generation: 2, Sequence: 100, Offset: 100}) {
				t.Fatalf("got %+v", m)
			}
			mustHold(t, y, one.n)
			y.Set("behind", Entry{Offset: 200, Until: 5}) // it goes on from there
			one.n.set("behind", Entry{Offset: 200, Until: 5})
			mustHold(t, y, one.n)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "sets") {
					k, e := drawKey(t, "key"), drawEntry(t)
					x.Set(k, e)
					n.set(k, e)
				}
			},
			"remove": func(t *rapid.T) {
				k := drawKey(t, "key")
				x.Remove(k, 31)
				n.remove(k, 31)
			},
			"snapshot": func(*rapid.T) { open = append(open, taken{x.Snapshot(), maps.Clone(n)}) },
			"encode": func(*rapid.T) {
				if len(open) > 0 {
					check()
				}
			},
		})
		for len(open) > 0 {
			check()
		}
		mustHold(t, x, n)
	})
}

func iotestOneByte(r io.Reader, yes bool) io.Reader {
	if yes {
		return oneByte{r}
	}
	return r
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func TestASnapshotOfManyBlocksComesBack(t *testing.T) {
	x := New()
	x.SetAsOf(1<<40, 1<<50)
	n := naive{}
	for i := range 20_000 {
		k := fmt.Sprintf("some/prefix/%d", i*7919)
		e := Entry{Offset: uint64(i) << 20, Sequence: uint64(i) << 10, Size: uint32(i), Until: int64(i%3) << 50, Carried: i%5 == 0}
		x.Set(k, e)
		n.set(k, e)
	}
	long := string(bytes.Repeat([]byte("k"), 3*blockTarget)) // above a block
	x.Set(long, Entry{Offset: 1})
	n.set(long, Entry{Offset: 1})
	y, _, err := Read(bytes.NewReader(encoded(t, x)))
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, y, n)
}

func TestOnceClosedASnapshotIsOfNoUse(t *testing.T) {
	x := New()
	s := x.Snapshot()
	s.Close()
	s.Close()
	if err := s.Encode(io.Discard, Meta{}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if x.shared != 0 {
		t.Fatalf("%d snapshots are counted as open", x.shared)
	}
}

func TestASnapshotIsNotMarkedWithWhatItDoesNotHold(t *testing.T) {
	x := New()
	x.SetAsOf(5, 9)
	s := x.Snapshot()
	defer s.Close()
	for _, m := range []Meta{{Sequence: 6, Offset: 9}, {Sequence: 5, Offset: 8}} {
		if err := s.Encode(io.Discard, m); !errors.Is(err, ErrMark) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	x.Set("ahead", Entry{Offset: 9, Sequence: 4})
	ahead := x.Snapshot()
	defer ahead.Close()
	if err := ahead.Encode(io.Discard, Meta{Sequence: 5, Offset: 9}); !errors.Is(err, ErrMark) {
		t.Error("an entry ahead of the mark:", err)
	}
}

func TestAnyFlippedBitIsFound(t *testing.T) {
	x := New()
	x.SetAsOf(100, 100)
	x.Set("a", Entry{Offset: 1, Sequence: 2, Until: 3, Size: 4, Carried: true})
	x.Set("ab", Entry{Offset: 5, Sequence: 6, Size: 7})
	good := encoded(t, x)
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if _, _, err := Read(bytes.NewReader(bad)); !useless(err) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
		if _, _, err := Read(bytes.NewReader(good[:i])); !errors.Is(err, ErrShort) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
	if _, _, err := Read(bytes.NewReader(append(good, 0))); !errors.Is(err, ErrContent) {
		t.Fatal("a byte too many:", err)
	}
}

func TestABlockOfAnotherSnapshotIsFound(t *testing.T) {
	snapshot := func(offset uint64) []byte {
		x := New()
		x.SetAsOf(100, 100)
		x.Set("a", Entry{Offset: offset})
		return encoded(t, x)
	}
	one, two := snapshot(1), snapshot(2)
	y := New()
	y.SetAsOf(101, 100)
	y.Set("a", Entry{Offset: 2})
	other := encoded(t, y)
	if _, _, err := Read(bytes.NewReader(append(bytes.Clone(one[:HeaderSize]), two[HeaderSize:]...))); err != nil {
		t.Fatal("the same header, so nothing to be found:", err)
	}
	if _, _, err := Read(bytes.NewReader(append(bytes.Clone(one[:HeaderSize]), other[HeaderSize:]...))); !errors.Is(err, ErrChecksum) {
		t.Fatal("a sound block below another header:", err)
	}
}

func TestAWrongLengthCostsNothing(t *testing.T) {
	x := New()
	x.SetAsOf(100, 100)
	head := encoded(t, x)[:HeaderSize]
	le.PutUint64(head[56:], 1<<40) // keys to come
	le.PutUint32(head[HeaderSize-4:], crc32.Checksum(head[:HeaderSize-4], castagnoli))
	lie := append(head, le.AppendUint32(le.AppendUint32(nil, maxBlock), 1)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Read(bytes.NewReader(lie))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrShort) {
		t.Fatal(err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<18 {
		t.Fatalf("%d bytes allocated for a block of %d that is not there", got, maxBlock)
	}
}
