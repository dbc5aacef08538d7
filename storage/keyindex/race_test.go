// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
)

// TestReadersPageWhileOneWrites holds what a pager may count on whatever is written meanwhile: keys in order, each once, and
// all of those that nobody touches.
func TestReadersPageWhileOneWrites(t *testing.T) {
	const stay, rounds = 500, 60
	x := New()
	for i := range stay {
		x.Set(fmt.Sprintf("stays/%04d", i), Entry{Offset: 1, Until: 10})
	}
	var done atomic.Bool
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			for pass := 0; pass == 0 || !done.Load(); pass++ {
				pages(t, x, 50+r, stay)
				x.Due(20, 10, func(_ string, e Entry) bool { return e.Until <= 20 })
				sequence, _ := x.AsOf()
				if e, ok := x.Get([]byte("goes/0001")); ok && e.Offset+1 < sequence {
					t.Errorf("as of %d, and the entry is of %d", sequence, e.Offset)
				}
				_, _, _, _ = x.Len(), x.Bytes(), x.LiveBytes(), x.NextDue()
			}
		})
	}
	for round := range uint64(rounds) {
		for i := range 100 {
			key := fmt.Sprintf("goes/%04d", i)
			x.Set(key, Entry{Offset: 10 + round, Sequence: round, Until: int64(round)})
			if (i+int(round))%3 == 0 {
				x.Remove(key, 11+round)
			}
		}
		x.SetAsOf(11+round, 11+round)
		s := x.Snapshot()
		written := make(chan error, 1)
		go func() { written <- s.Encode(io.Discard, metaOf(s)) }()
		for i := range 50 { // what the snapshot holds changes below it
			x.Set(fmt.Sprintf("stays/%04d", i), Entry{Offset: 10 + round, Sequence: round, Until: 10})
		}
		x.SweepBelow(0, 11+round).Next(10)
		if err := <-written; err != nil {
			t.Error(err)
		}
		s.Close()
	}
	done.Store(true)
	readers.Wait()
}

func pages(t *testing.T, x *Index, limit, stay int) {
	seen, last, after, more := 0, "", "", true
	for has := false; more; has = true {
		n := 0
		more = false
		x.Ascend("stays/", after, has, func(key string, _ Entry) bool {
			if n == limit {
				more = true
				return false
			}
			n++
			if key <= last {
				t.Errorf("%q came behind %q", key, last)
			}
			last = key
			seen++
			return true
		})
		after = last
	}
	if seen != stay {
		t.Errorf("saw %d of %d keys", seen, stay)
	}
}
