// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"margay.dev/broker/cache"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// A feed that has no watches left ends, the next watch gets another, and nothing is left of any of it.
func TestFeedsComeAndGo(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.watcher()
		for id := uint64(1); id < 20; id++ {
			x := l.must(&wire.Watch{ID: id})
			b.put(rec("k", fmt.Sprint(id)))
			if n := b.stats.Feeds.Load(); n != 1 || len(x.events) != 1 || x.events[0].value != fmt.Sprint(id) {
				t.Fatalf("watch %d: %d feeds, events %+v", id, n, x.events)
			}
			if err := l.w.Unwatch(id, &wire.Unwatch{ID: id}); err != nil {
				t.Fatal(err)
			}
			if id%2 == 0 {
				synctest.Wait()
				if n := b.stats.Feeds.Load(); n != 0 || b.shard.Hub().Subscribers() != 0 {
					t.Fatalf("%d feeds are left, and %d queues", n, b.shard.Hub().Subscribers())
				}
			}
		}
		synctest.Wait()
		if b.held.Load() != 0 || b.stats.Watches.Load() != 0 || len(l.ends) != 19 {
			t.Errorf("%d held, %d watches, %d ends", b.held.Load(), b.stats.Watches.Load(), len(l.ends))
		}
		l.end(nil)
	})
}

// A lane has so many watches, and not more; those that end make room.
func TestWatchesOfALaneAreBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.watcher()
		l.deaf = true
		for id := range uint64(cache.MaxWatches) {
			if err := l.w.Watch(id+1, &wire.Watch{ID: id + 1, Filter: wire.Filter{Kind: wire.FilterExact, Value: fmt.Sprint("k", id)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.w.Watch(1, &wire.Watch{ID: 1 << 40}); !errors.Is(err, code.TooMany) {
			t.Errorf("one more: %v", err)
		}
		if err := l.w.Unwatch(1, &wire.Unwatch{ID: 7}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := l.w.Watch(1, &wire.Watch{ID: 1 << 40}); err != nil {
			t.Errorf("one in the place of another: %v", err)
		}
		b.held.Add(cache.MaxHeld - cache.MaxWatches)
		other := b.watcher()
		if err := other.watch(&wire.Watch{ID: 1}); !errors.Is(err, code.TooMany) {
			t.Errorf("one more than the connection may have: %v", err)
		}
	})
}
