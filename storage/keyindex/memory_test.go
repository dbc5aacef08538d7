// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestMemoryIsAsTold(t *testing.T) {
	const n = 50_000
	for _, c := range []struct {
		name     string
		pad      int
		ttl      bool
		shuffled bool
		removed  int // of ten
	}{
		{name: "32 bytes, rising", pad: 32},
		{name: "32 bytes, in any order", pad: 32, shuffled: true},
		{name: "32 bytes, rising, expiring", pad: 32, ttl: true},
		{name: "32 bytes, in any order, expiring", pad: 32, ttl: true, shuffled: true},
		{name: "12 bytes, in any order", pad: 12, shuffled: true},
		{name: "90 bytes, in any order, half removed", pad: 90, shuffled: true, ttl: true, removed: 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := heap()
			x := New()
			keys := make([]string, n) // the index copies no string, and nobody but it holds them when they are measured
			for i := range keys {
				keys[i] = strings.Clone(fmt.Sprintf("%0*d", c.pad, i))
			}
			if c.shuffled {
				keys = shuffled(keys)
			}
			for i, k := range keys {
				e := Entry{Offset: uint64(i)}
				if c.ttl {
					e.Until = int64(i) + 1
				}
				x.Set(k, e)
			}
			for i, k := range keys {
				if i%10 < c.removed {
					x.Remove(k, n)
				}
			}
			took, told := heap()-before, x.Bytes()
			t.Logf("took %d bytes, told %d: %.1f and %.1f a key", took, told, float64(took)/float64(x.Len()), float64(told)/float64(x.Len()))
			if told < took*85/100 || told > took*115/100 {
				t.Errorf("the index takes %d bytes and tells of %d", took, told)
			}
			if beside := float64(took)/float64(x.Len()) - float64(allocated(c.pad)); c.removed == 0 && beside > 120 {
				t.Errorf("%.1f bytes for each key beside its own", beside)
			}
			runtime.KeepAlive(x)
		})
	}
}

func TestWhatIsThereIsFoundAndSetWithoutAllocating(t *testing.T) {
	x := filled(someKeys(10_000), false)
	key, text, offset := []byte("tenant/device/000000000000000777"), "tenant/device/000000000000000777", uint64(20_000)
	got := testing.AllocsPerRun(100, func() {
		if _, ok := x.Get(key); !ok {
			t.Fatal("the key is not there")
		}
		offset++
		x.Set(text, Entry{Offset: offset})
	})
	if got != 0 {
		t.Fatalf("%v allocations", got)
	}
}
