// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"testing"

	"margay.dev/wire"
)

// What comes live while the history is on its way and finds no room is read again, from its place on.
func TestWhatFoundNoRoomIsReadAgain(t *testing.T) {
	at := func(offset uint64) *Change {
		return &Change{Kind: Put, Key: "k", Offset: offset, Generation: 3, Before: 3}
	}
	w := New(1, false, 1, []Start{{Offset: 4, Generation: 2}})
	w.Ask(0)
	w.Live(0, at(5)) // fits, as anything does when there is nothing else
	w.Live(0, at(6))
	w.Live(0, at(7))
	if o := w.Watched(0, 5, 3, wire.HowHistory); o != GoOn {
		t.Fatal(o)
	}
	if o := w.Done(0); o != FellBehind {
		t.Fatalf("it goes on without what found no room: %d", o)
	}
	if c, _, _, ok := w.Take(); !ok || c.Offset != 5 {
		t.Fatalf("%+v, %v", c, ok)
	}
	w.CatchUp(func(int) {})
	if again, ok := w.Ask(0); !ok || again != (Start{Offset: 6, Generation: 3}) {
		t.Fatalf("it goes on at %+v", again)
	}
}

// A conflating watch holds no more than its bound either: values that grow are read again when there is room, but one that
// is alone fits, as anything does.
func TestWhatTakesAnothersPlaceNeedsRoom(t *testing.T) {
	at := func(key string, offset uint64, size int) *Change {
		return &Change{Kind: Put, Key: key, Value: make([]byte, size), Offset: offset, Generation: 3, Before: 3}
	}
	const limit = 4 << 10
	w := New(limit, true, 1, []Start{{Offset: 0, Generation: 2}})
	w.Ask(0)
	w.Watched(0, 0, 3, wire.HowLive)
	for i, c := range []*Change{at("a", 0, 1), at("a", 1, 2*limit), at("a", 2, 1), at("b", 3, 1)} {
		if o := w.Live(0, c); o != GoOn {
			t.Fatalf("change %d: %d", i, o)
		}
	}
	if o := w.Live(0, at("b", 4, limit)); o != FellBehind {
		t.Fatalf("it holds %d bytes of %d: %d", w.held, limit, o)
	}
	for _, want := range []uint64{2, 3} {
		if c, _, _, ok := w.Take(); !ok || c.Offset != want {
			t.Fatalf("%+v, %v; want offset %d", c, ok, want)
		}
	}
	w.CatchUp(func(int) {})
	if again, ok := w.Ask(0); !ok || again != (Start{Offset: 4, Generation: 3}) {
		t.Fatalf("it goes on at %+v", again)
	}
}
