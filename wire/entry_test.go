// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"reflect"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

func drawEntry(t *rapid.T, may ...EntryKind) Entry {
	bytes := rapid.SliceOfN(rapid.Byte(), 0, 200)
	e := Entry{Kind: rapid.SampledFrom(may).Draw(t, "kind")}
	if e.Kind == EntryNone {
		return e
	}
	e.Key, e.Offset, e.Generation = bytes.Draw(t, "key"), rapid.Uint64().Draw(t, "offset"), rapid.Uint64().Draw(t, "generation")
	e.AppendTime, e.Expires = rapid.Int64().Draw(t, "append time"), rapid.Int64Min(0).Draw(t, "expires")
	if e.Kind == EntryValue {
		e.Value = bytes.Draw(t, "value")
	}
	if e.hasHeaders() {
		e.Headers = batch.AppendHeaders([]byte{}, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) batch.Header {
			return batch.Header{Key: rapid.String().Draw(t, "name"), Value: bytes.Draw(t, "header")}
		}), 0, 3).Draw(t, "headers"))
	}
	return e
}

// TestEntriesComeBackAsTheyWere: also an empty value, which is not none, and an entry's own size, by which a broker keeps its
// answers below a bound.
func TestEntriesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := func(may ...EntryKind) []Entry {
			return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry { return drawEntry(t, may...) }), 1, 8).Draw(t, "entries")
		}
		for _, f := range []struct {
			sent, got Frame
			list      func(Frame) []Entry
		}{
			{&Got{Entries: entries(EntryNone, EntryValue)}, &Got{}, func(f Frame) []Entry { return f.(*Got).Entries }},
			{&Listed{Entries: entries(EntryValue, EntryKey)}, &Listed{}, func(f Frame) []Entry { return f.(*Listed).Entries }},
			{
				&WatchEntries{ID: 1, Entries: entries(EntryValue, EntryDeleted, EntryExpired)}, &WatchEntries{},
				func(f Frame) []Entry { return f.(*WatchEntries).Entries },
			},
		} {
			body := f.sent.Append(nil)
			if err := f.got.Parse(body); err != nil {
				t.Fatal(err)
			}
			sent, got := f.list(f.sent), f.list(f.got)
			if !reflect.DeepEqual(sent, got) {
				t.Fatalf("%s: %+v, want %+v", f.sent.Type(), got, sent)
			}
			size := 0
			for i := range got {
				size += got[i].Size()
			}
			if entriesSize(got) != 4+size {
				t.Fatalf("%d bytes of entries, together %d", entriesSize(got), 4+size)
			}
		}
	})
}

func TestVersionOfAnEntry(t *testing.T) {
	if none, first := (&Entry{}), (&Entry{Kind: EntryKey}); none.Version() != 0 || first.Version() != 1 {
		t.Errorf("nothing has version %d, the record at offset 0 %d", none.Version(), first.Version())
	}
}

// TestEntriesAreBounded: an entry can be one byte, and takes many in memory. The number is refused before that.
func TestEntriesAreBounded(t *testing.T) {
	one := Entry{Kind: EntryExpired, Key: []byte("k")}
	f := &WatchEntries{ID: 1}
	for len(f.Entries) < MaxEntries {
		f.Entries = append(f.Entries, one)
	}
	if err := new(WatchEntries).Parse(f.Append(nil)); err != nil {
		t.Error(err)
	}
	f.Entries = append(f.Entries, one)
	if err := new(WatchEntries).Parse(f.Append(nil)); !errors.Is(err, ErrValue) {
		t.Errorf("one entry too many: %v", err)
	}
	body := (&Got{Entries: make([]Entry, 8<<20)}).Append(nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := new(Got).Parse(body)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrValue) || grown > 1<<20 {
		t.Errorf("8 million entries: %v, %d bytes were allocated", err, grown)
	}
}

func TestGetBoundsKeys(t *testing.T) {
	f := &Get{Keys: make([][]byte, MaxGetKeys)}
	if err := new(Get).Parse(f.Append(nil)); err != nil {
		t.Error(err)
	}
	f.Keys = append(f.Keys, nil)
	if err := new(Get).Parse(f.Append(nil)); !errors.Is(err, ErrValue) {
		t.Errorf("one key too many: %v", err)
	}
}

// TestFilterOfAllKeys: for caches only, and a grant limited to some keys does not hold it.
func TestFilterOfAllKeys(t *testing.T) {
	all := Filter{}
	if all.ValidateKeys() != nil || all.Validate() == nil || !all.Matches([]byte{}) || all.Matches(nil) {
		t.Errorf("%s: %v, %v", all, all.ValidateKeys(), all.Validate())
	}
	if !all.Within("#") || all.Within("a/#") || all.Within("+") {
		t.Errorf("%s lies within what it does not", all)
	}
	for _, f := range []Filter{{FilterAll, "a"}, {4, ""}, {FilterPattern, ""}} {
		if f.ValidateKeys() == nil {
			t.Errorf("%s is accepted", f)
		}
	}
	if (Filter{FilterAll, "a"}).Within("#") {
		t.Error("what is no filter lies within a grant")
	}
}
