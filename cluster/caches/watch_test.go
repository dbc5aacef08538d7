// SPDX-License-Identifier: Apache-2.0

package caches_test

import (
	"fmt"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
)

// CA-12, S10: whatever 200 watchers watch, and whenever they begin, each comes to what the cache holds: the state, a mark
// that it is complete, also when it is empty, and then every change once.
func TestWatchersAddUp(t *testing.T) {
	const shards, writers, keys, watchers = 4, 16, 500, 200
	each := 120
	if !testing.Short() {
		each = 2000
	}
	n := margaytest.Start(t)
	create(t, n, small(shards))
	b := newBook(t, shards, nil)
	ctx := within(t)
	var clients []*client.Client
	for range 10 {
		clients = append(clients, n.Connect())
	}
	key := func(i int) string { return fmt.Sprintf("%d/%d", i%10, i) }
	var wg sync.WaitGroup
	begun := make(chan int, writers*each) // a token for each write that has begun
	for w := range writers {
		k, who := clients[w%len(clients)].Cache("c"), fmt.Sprint("writer ", w)
		wg.Go(func() {
			for i := range each {
				begun <- i
				at := key((i*writers + w*7) % keys)
				var err error
				switch i % 8 {
				case 7:
					_, err = b.del(ctx, who, k, at)
				default:
					_, err = b.add(ctx, who, k, at, int64(1+w))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all200 := make([]*watcher, 0, watchers)
	for i := range watchers {
		for range writers * each / watchers { // they begin while the others write
			<-begun
		}
		k, name := clients[i%len(clients)].Cache("c"), fmt.Sprint("watcher ", i)
		switch i % 4 {
		case 0:
			all200 = append(all200, b.watch(name, k, all, true))
		case 1:
			p := fmt.Sprintf("%d/", i%10)
			all200 = append(all200, b.watch(name, k, under(p), true, client.Prefix(p)))
		case 2:
			at := key(i)
			all200 = append(all200, b.watch(name, k, func(key string) bool { return key == at }, true, client.Key(at)))
		default:
			all200 = append(all200, b.watch(name, k, under("none/"), true, client.Prefix("none/")))
		}
	}
	wg.Wait()
	b.settle(clients[0], all200...)
	for i, x := range all200 {
		if completes, resets := x.marks(); completes != 1 || resets != 0 {
			t.Errorf("watcher %d was told %d times that its snapshot is complete, and to begin anew %d times", i, completes, resets)
		}
	}
}

// CA-10: who comes back to a place that reclaim has passed is told to begin anew, once, gets what there is, marked as that,
// and goes on.
func TestWatchFromAPlaceThatIsGone(t *testing.T) {
	overwrites := 3000
	if !testing.Short() {
		overwrites = 100_000
	}
	n := margaytest.Start(t)
	create(t, n, small(1))
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	b := newBook(t, 1, nil)
	if _, err := b.put(ctx, "w", k, "x", 0, nil); err != nil {
		t.Fatal(err)
	}
	first := b.watch("first", k, under("x"), true, client.Key("x"))
	first.has("a complete snapshot", func(ch client.Change) bool { return ch.Kind == client.SnapshotComplete })
	var place string
	await.True(t, "a place to come back to", func() bool { place = first.w.Position(); return place != "" })
	first.close()
	overwrite(t, k, overwrites)
	reclaimed(t, c, 0, 100)
	again := b.watch("again", k, under("x"), false, client.Key("x"), client.FromPosition(place))
	if _, err := b.put(ctx, "w", k, "x", 0, nil); err != nil {
		t.Fatal(err)
	}
	again.has("the next change", func(ch client.Change) bool { return ch.Kind == client.Put && !again.snapshot })
	b.settle(c, again)
	if completes, resets := again.marks(); resets > 1 || completes != resets {
		t.Errorf("begun anew %d times, complete %d times", resets, completes)
	}
}

// overwrite puts so many values of a few keys, so that what lies before them is reclaimed.
func overwrite(t *testing.T, k *client.Cache, times int) {
	t.Helper()
	ctx := within(t)
	for i := range times {
		k.PutAsync(ctx, fmt.Sprint("filler/", i%5), fmt.Appendf(nil, "%0100d", i))
		if i%16 < 15 && i < times-1 { // in batches that are smaller than a segment
			continue
		}
		if err := k.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// reclaimed waits until a shard begins at an offset or behind it.
func reclaimed(t *testing.T, c *client.Client, shard int, offset uint64) {
	t.Helper()
	await.True(t, fmt.Sprintf("shard %d to be reclaimed up to offset %d", shard, offset), func() bool {
		o, err := c.Offsets(within(t), "c")
		return err == nil && o[shard].Earliest >= offset
	})
}

// CA-09: the delete of a key, at the very place where reclaim begins: a watch from before, at and behind it is told of it,
// or told to begin anew; it never keeps what is gone.
func TestDeleteAroundReclaim(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, small(1))
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	b := newBook(t, 1, nil)
	for _, key := range []string{"a", "b", "c", "d"} {
		if _, err := b.put(ctx, "w", k, key, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := b.del(ctx, "w", k, "a")
	if err != nil {
		t.Fatal(err)
	}
	few := func(key string) bool { return len(key) == 1 }
	for _, restart := range []bool{false, true} {
		for _, fill := range []int{0, 40, 60, 2000} { // none is gone yet, and then everything
			overwrite(t, k, fill)
			if restart {
				n.Restart()
			}
			for _, from := range []uint64{deleted - 2, deleted - 1, deleted, deleted + 1} {
				x := b.watch(fmt.Sprint("from ", from, " behind ", fill), k, few, false, client.FromVersion(from), client.Pattern("+"))
				if _, err := b.put(ctx, "w", k, "e", 0, nil); err != nil {
					t.Fatal(err)
				}
				x.has("what is put then", func(ch client.Change) bool { return ch.Kind == client.Put && ch.Entry.Key == "e" })
				x.close()
				switch told := x.told(client.Deleted, "a"); {
				case from < deleted && told == 0 && x.resets == 0:
					t.Errorf("a watch from version %d was not told that %d deletes", from, deleted)
				case told > 1 || from >= deleted && told > 0:
					t.Errorf("a watch from version %d was told %d times that %d deletes", from, told, deleted)
				case x.told(client.Put, "a") > 0:
					t.Errorf("a watch from version %d was told that a is there", from)
				}
			}
		}
	}
	b.settle(c)
}
