// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive is what the index must be, written as plainly as can be.
type naive map[string]Entry

func (n naive) set(key string, e Entry) {
	old, ok := n[key]
	if !ok || e.Offset > old.Offset || e.Offset == old.Offset && e.Sequence > old.Sequence {
		n[key] = e
	}
}

func (n naive) remove(key string, offset uint64) {
	if e, ok := n[key]; ok && e.Offset < offset {
		delete(n, key)
	}
}

type pair struct {
	key string
	Entry
}

func (n naive) ascend(prefix, after string, hasAfter bool) []pair {
	var out []pair
	for _, k := range slices.Sorted(maps.Keys(n)) {
		if strings.HasPrefix(k, prefix) && (!hasAfter || k > after) {
			out = append(out, pair{k, n[k]})
		}
	}
	return out
}

func (n naive) due(now int64) []pair {
	var out []pair
	for k, e := range n {
		if e.Until != 0 && e.Until <= now {
			out = append(out, pair{k, e})
		}
	}
	slices.SortFunc(out, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.Until, b.Until), strings.Compare(a.key, b.key))
	})
	return out
}

func (n naive) live() (sum int64) {
	for _, e := range n {
		sum += int64(e.Size)
	}
	return sum
}

func drawKey(t *rapid.T, label string) string {
	return rapid.StringMatching(`[ab]{0,3}(/[0-9]{1,2})?`).Draw(t, label)
}

func drawEntry(t *rapid.T) Entry {
	return Entry{
		Offset:   rapid.Uint64Range(0, 30).Draw(t, "offset"),
		Sequence: rapid.Uint64Range(0, 30).Draw(t, "sequence"),
		Until:    max(0, rapid.Int64Range(-10, 20).Draw(t, "until")),
		Size:     rapid.Uint32Range(0, 1000).Draw(t, "size"),
		Carried:  rapid.Bool().Draw(t, "carried"),
	}
}

func collect(walk func(f func(string, Entry) bool)) []pair {
	var out []pair
	walk(func(k string, e Entry) bool {
		out = append(out, pair{k, e})
		return true
	})
	return out
}

func TestIndexIsWhatANaiveMapIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, n := New(), naive{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, e := drawKey(t, "key"), drawEntry(t)
				x.Set(k, e)
				n.set(k, e)
			},
			"remove": func(t *rapid.T) {
				k, offset := drawKey(t, "key"), rapid.Uint64Range(0, 31).Draw(t, "offset")
				x.Remove(k, offset)
				n.remove(k, offset)
			},
			"sweep": func(t *rapid.T) {
				sequence, offset := rapid.Uint64Range(0, 12).Draw(t, "sequence"), rapid.Uint64Range(0, 12).Draw(t, "offset")
				for s, more := x.SweepBelow(sequence, offset), true; more; {
					_, more = s.Next(rapid.IntRange(1, 5).Draw(t, "limit"))
				}
				maps.DeleteFunc(n, func(_ string, e Entry) bool {
					return e.Sequence < sequence || !e.Carried && e.Offset < offset
				})
			},
			"page": func(t *rapid.T) {
				prefix, after, has := drawKey(t, "prefix"), drawKey(t, "after"), rapid.Bool().Draw(t, "hasAfter")
				got := collect(func(f func(string, Entry) bool) { x.Ascend(prefix, after, has, f) })
				mustEqual(t, fmt.Sprintf("keys below %q behind %q (%v)", prefix, after, has), got, n.ascend(prefix, after, has))
			},
			"due": func(t *rapid.T) {
				now, limit := rapid.Int64Range(0, 20).Draw(t, "now"), rapid.IntRange(0, 10).Draw(t, "limit")
				want := n.due(now)
				got := collect(func(f func(string, Entry) bool) { x.Due(now, limit, f) })
				mustEqual(t, fmt.Sprintf("%d due at %d", limit, now), got, want[:min(limit, len(want))])
			},
			"": func(t *rapid.T) { mustHold(t, x, n) },
		})
	})
}

func mustHold(t rapid.TB, x *Index, n naive) {
	t.Helper()
	mustEqual(t, "all keys", collect(func(f func(string, Entry) bool) { x.Ascend("", "", false, f) }), n.ascend("", "", false))
	for k, e := range n {
		if got, ok := x.Get([]byte(k)); !ok || got != e {
			t.Fatalf("key %q: got %+v (%v), want %+v", k, got, ok, e)
		}
	}
	if x.Len() != len(n) || x.LiveBytes() != n.live() {
		t.Fatalf("got %d keys of %d live bytes, want %d of %d", x.Len(), x.LiveBytes(), len(n), n.live())
	}
	next := int64(0)
	if due := n.due(1 << 62); len(due) > 0 {
		next = due[0].Until
	}
	if got := x.NextDue(); got != next {
		t.Fatalf("next is due at %d, want %d", got, next)
	}
}

func mustEqual(t rapid.TB, what string, got, want []pair) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
