// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"runtime"
	"testing"

	"margay.dev/wire"
)

// A watch of a lane that has many costs the broker less than a kilobyte, with its share of what the lane's feed holds.
func TestMemoryOfWatches(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector keeps books of its own")
	}
	const lanes, each, most = 50, 100, 1 << 10
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for i := range each {
			b.put(rec(fmt.Sprintf("device/%06d/state", i), "some value of some length"))
		}
		all := make([]*lane, lanes)
		for i := range all {
			all[i] = b.watcher()
			all[i].deaf = true
		}
		before := inUse()
		for i, l := range all {
			for j := range each {
				f := &wire.Watch{ID: uint64(j + 1), Start: wire.WatchSnapshot, Filter: wire.Filter{Kind: wire.FilterExact, Value: fmt.Sprintf("device/%06d/state", (i*7+j)%each)}}
				if j%10 == 0 {
					f.Filter = wire.Filter{Kind: wire.FilterPattern, Value: fmt.Sprintf("device/+/%d/%d", i, j)}
				}
				if err := l.w.Watch(f.ID, f); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.settle()
		b.put(rec("device/000000/state", "another"))
		b.settle()
		took := (inUse() - before) / (lanes * each)
		t.Logf("%d watches on %d lanes take %d bytes each", lanes*each, lanes, took)
		if took > most {
			t.Errorf("a watch takes %d bytes, at most %d", took, most)
		}
	})
}

// inUse is what the heap and the stacks of goroutines take.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what pools held goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
