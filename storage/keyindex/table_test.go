// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestCollidingHashesAreFoundWhateverIsRemoved takes a part alone, with hashes that fall on few slots: at both ends, so that
// runs go round, and close together, so that they run into each other.
func TestCollidingHashesAreFoundWhateverIsRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p part
		p.resize(16)
		hash := rapid.SampledFrom([]uint32{1, 2, 1 << 28, 1<<28 + 1, 1 << 31, 15 << 28, 1<<32 - 2, 1<<32 - 1})
		there := map[*item]uint32{}
		var order []*item
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				if len(there) == 12 {
					t.Skip("full")
				}
				it := &item{key: fmt.Sprint(len(order))}
				there[it] = hash.Draw(t, "hash")
				order = append(order, it)
				p.put(there[it], it)
			},
			"remove": func(t *rapid.T) {
				if len(order) == 0 {
					t.Skip("nothing there")
				}
				i := rapid.IntRange(0, len(order)-1).Draw(t, "which")
				it := order[i]
				p.remove(p.find(there[it], it))
				delete(there, it)
				order = append(order[:i:i], order[i+1:]...)
			},
			"": func(t *rapid.T) {
				slots := 0
				for i, h := range p.hashes {
					if (h == 0) != (p.items[i] == nil) {
						t.Fatalf("slot %d is half empty", i)
					}
					if h != 0 {
						slots++
					}
				}
				if slots != len(there) {
					t.Fatalf("%d slots are taken by %d items", slots, len(there))
				}
				for it, h := range there {
					for i := p.home(h); p.items[i] != it; i = p.next(i) {
						if p.hashes[i] == 0 {
							t.Fatalf("item %s of hash %#x is not found", it.key, h)
						}
					}
				}
			},
		})
	})
}

func TestTheTableGrowsAndShrinksWithItsKeys(t *testing.T) {
	tab := newTable()
	items := map[string]*item{}
	most := 0
	for i := range 20_000 {
		it := &item{key: fmt.Sprint(i)}
		tab.add(it)
		items[it.key] = it
		if tab.slots > 2*tab.count+parts*leastRoom {
			t.Fatalf("%d slots for %d keys", tab.slots, tab.count)
		}
		most = tab.slots
	}
	for i := range 19_900 {
		key := fmt.Sprint(i)
		tab.remove(items[key])
		delete(items, key)
		if tab.get(key) != nil {
			t.Fatalf("key %q is still found", key)
		}
	}
	for key, it := range items {
		if tab.get(key) != it || tab.getBytes([]byte(key)) != it {
			t.Fatalf("key %q is not found", key)
		}
	}
	room := 0
	for i := range tab.parts {
		room += len(tab.parts[i].hashes)
	}
	if room != tab.slots || room > most/10 || tab.count != len(items) {
		t.Fatalf("%d slots, counted as %d, for %d keys, counted as %d; %d at most", room, tab.slots, len(items), tab.count, most)
	}
}
