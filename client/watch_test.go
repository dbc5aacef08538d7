// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

func watch(t testing.TB, k *client.Cache, opts ...client.WatchOption) *client.Watch {
	t.Helper()
	w, err := k.Watch(within(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// told reads changes until enough, as "kind key=value".
func told(t testing.TB, w *client.Watch, enough func(ch client.Change) bool) (all []string) {
	t.Helper()
	for ch, err := range w.Changes(within(t)) {
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		s := ch.Kind.String()
		if ch.Entry.Key != "" {
			s += " " + ch.Entry.Key
		}
		if ch.Kind == client.Put {
			s += "=" + string(ch.Entry.Value)
		}
		if all = append(all, s); enough(ch) {
			break
		}
	}
	return all
}

func some(n int) func(client.Change) bool {
	return func(client.Change) bool { n--; return n == 0 }
}

func wantTold(t testing.TB, w *client.Watch, want ...string) {
	t.Helper()
	if got := told(t, w, some(len(want))); !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
}

func TestWatchTellsWhatChanges(t *testing.T) {
	b, l, k := cached(t, 1)
	put(t, k, "before", "x")
	everything, one, prefix, pattern := watch(t, k), watch(t, k, client.Key("u/1")), watch(t, k, client.Prefix("u/")), watch(t, k, client.Pattern("+/2"))
	put(t, k, "u/1", "a")
	put(t, k, "u/2", "")
	if _, err := k.Delete(within(t), "u/1"); err != nil {
		t.Fatal(err)
	}
	b.Expire(l, 0, "u/2")
	put(t, k, "v", "b")
	wantTold(t, everything, "put u/1=a", "put u/2=", "deleted u/1", "expired u/2", "put v=b")
	wantTold(t, one, "put u/1=a", "deleted u/1")
	wantTold(t, prefix, "put u/1=a", "put u/2=", "deleted u/1", "expired u/2")
	wantTold(t, pattern, "put u/2=", "expired u/2")
	if n := b.Connections(); n > 3 {
		t.Errorf("%d connections for one publisher, requests and watches", n)
	}
}

func TestWatchWithSnapshot(t *testing.T) {
	b, _, k := cached(t, 4)
	wantTold(t, watch(t, k, client.WithSnapshot()), "snapshot complete")
	want := []string{}
	for i := range 50 {
		key := fmt.Sprintf("k%02d", i)
		put(t, k, key, key)
		want = append(want, "put "+key+"="+key)
	}
	b.Script(func(s *fakebroker.Script) { s.MaxEntries = 3 })
	w := watch(t, k, client.WithSnapshot())
	if w.Position() != "" {
		t.Error("a watch has a position before its snapshot")
	}
	got := told(t, w, some(10))
	put(t, k, "k00", "new") // told already as it was
	put(t, k, "k01", "new")
	if _, err := k.Delete(within(t), "k49"); err != nil {
		t.Fatal(err)
	}
	got = append(got, told(t, w, func(ch client.Change) bool { return ch.Kind == client.SnapshotComplete })...)
	if k49 := len(got) - 2; got[k49] == want[49] { // its page was read before
		want = append(want, "snapshot complete")
	} else {
		want = append(want[:49], "snapshot complete")
	}
	if !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
	put(t, k, "end", "")
	waited := map[string]bool{"end": true, "k00": true, "k01": true} // of several shards, so in any order
	got = told(t, w, func(ch client.Change) bool {
		delete(waited, ch.Entry.Key)
		return len(waited) == 0
	})
	slices.Sort(got)
	if !slices.Contains(got, "put k00=new") || !slices.Contains(got, "put k01=new") || w.Position() == "" {
		t.Fatalf("behind the snapshot came %q", got)
	}
}

// One that does not read falls behind, and is told everything in the end; others do not wait for it.
func TestSlowWatchFallsBehind(t *testing.T) {
	b, _, k := cached(t, 2)
	slow, quick := watch(t, k, client.WatchBuffer(4<<10)), watch(t, k)
	conflated := watch(t, k, client.Conflate(), client.WatchBuffer(4<<10))
	const n = 300
	for i := range n {
		k.PutAsync(within(t), fmt.Sprint("k", i%3), []byte(value(i)))
	}
	if err := k.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	last := func(count int) func(client.Change) bool {
		keys := map[string]bool{}
		return func(ch client.Change) bool {
			count--
			if string(ch.Entry.Value) >= value(n-3) {
				keys[ch.Entry.Key] = true
			}
			return count == 0 || len(keys) == 3
		}
	}
	inOrder := func(all []string, every bool) {
		t.Helper()
		newest := map[string]string{}
		for _, s := range all {
			key := s[:len("put k0")]
			if s <= newest[key] {
				t.Fatalf("%s comes behind %s", s, newest[key])
			}
			newest[key] = s
		}
		if every && len(all) != n {
			t.Fatalf("%d of %d changes were told", len(all), n)
		}
	}
	inOrder(told(t, quick, last(n)), true)
	if asked := len(b.Watches()); asked > 6+2 {
		t.Errorf("%d watches were asked for", asked)
	}
	inOrder(told(t, slow, last(n)), true)
	inOrder(told(t, conflated, last(n)), false)
	put(t, k, "live", "again")
	wantTold(t, slow, "put live=again")
}

func TestConflatedChangeSaysWhatItSkipped(t *testing.T) {
	_, _, k := cached(t, 1)
	w, other := watch(t, k, client.Conflate()), watch(t, k)
	for i := range 10 {
		put(t, k, "k", value(i))
	}
	put(t, k, "end", "")
	told(t, other, some(11)) // then the first has them too
	for ch, err := range w.Changes(within(t)) {
		if err != nil || string(ch.Entry.Value) != value(9) || ch.Skipped != 9 {
			t.Fatalf("%+v, %v", ch, err)
		}
		break
	}
	wantTold(t, w, "put end=")
}

func TestWatchResumes(t *testing.T) {
	b, _, k := cached(t, 3)
	var lost, back int
	var mu sync.Mutex
	w := watch(t, k, client.OnStatus(func(s client.Status) {
		mu.Lock()
		defer mu.Unlock()
		if s.Connected {
			back++
		} else {
			lost++
		}
	}))
	const n = 60
	for i := range n {
		put(t, k, fmt.Sprint("k", i%7), value(i))
		switch i {
		case 20, 40:
			b.KillConnections()
		case 30:
			b.Stop()
			b.Start()
		}
	}
	seen := map[string]int{}
	for _, s := range told(t, w, some(n)) {
		seen[s[len("put k0="):]]++
	}
	if len(seen) != n {
		t.Fatalf("%d different of %d changes were told", len(seen), n)
	}
	put(t, k, "end", "")
	wantTold(t, w, "put end=")
	mu.Lock()
	defer mu.Unlock()
	if lost == 0 || back == 0 {
		t.Errorf("status: lost %d times, back %d times", lost, back)
	}
}

// CA-10: a place that is gone is a reset and a snapshot, not an end and not a loop.
func TestWatchIsResetWhenItsPlaceIsGone(t *testing.T) {
	b, l, k := cached(t, 2)
	for i := range 20 {
		put(t, k, fmt.Sprint("k", i), "old")
	}
	w := watch(t, k, client.Prefix("k"))
	at := w.Position()
	put(t, k, "k1", "new")
	if _, err := k.Delete(within(t), "k2"); err != nil {
		t.Fatal(err)
	}
	b.Change(func() {
		for _, s := range l.Shards {
			s.Reclaim(uint64(len(s.Batches)) + 1)
		}
	})
	gone := watch(t, k, client.Prefix("k"), client.FromPosition(at))
	got := told(t, gone, func(ch client.Change) bool { return ch.Kind == client.SnapshotComplete })
	if len(got) != 1+19+1 || got[0] != "reset" || !slices.Contains(got, "put k1=new") {
		t.Fatalf("told %q", got)
	}
	put(t, k, "k3", "newer")
	wantTold(t, gone, "put k3=newer")
}

func TestWatchGoesOnFromAPosition(t *testing.T) {
	_, _, k := cached(t, 2)
	w := watch(t, k)
	v := put(t, k, "a", "1")
	wantTold(t, w, "put a=1")
	at := w.Position()
	put(t, k, "a", "2")
	put(t, k, "a", "3")
	wantTold(t, watch(t, k, client.FromPosition(at)), "put a=2", "put a=3")
	wantTold(t, watch(t, k, client.FromPosition(w.Position())), "put a=2", "put a=3") // what was not read is before it
	wantTold(t, watch(t, k, client.Key("a"), client.FromVersion(v)), "put a=2", "put a=3")
	for _, opts := range [][]client.WatchOption{
		{client.FromVersion(v)},
		{client.FromPosition("mp1_x")},
		{client.FromNow(), client.WithSnapshot()},
		{client.Key("a"), client.Prefix("b")},
		{client.Pattern("a#")},
		{client.WatchBuffer(0)},
		{client.Key("")},
	} {
		_, err := k.Watch(within(t), opts...)
		wantError(t, err, client.ErrBadRequest, client.Fatal)
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	b, _, k := cached(t, 1)
	refuse := func(err *code.Error) {
		b.Script(func(s *fakebroker.Script) { s.Watch = func(*wire.Watch) error { return err } })
	}
	refuse(code.New(code.PermissionDenied, "not for you"))
	_, err := k.Watch(within(t))
	wantError(t, err, client.ErrPermissionDenied, client.Fatal)
	refuse(code.New(code.TooMany, "enough"))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	tries := func() { // who asks again has been answered
		n := len(b.Watches()) + 2
		eventually(t, "some tries", func() bool { return len(b.Watches()) > n })
	}
	var trying sync.WaitGroup
	trying.Go(func() {
		tries()
		cancel()
	})
	_, err = k.Watch(ctx)
	wantError(t, err, client.ErrTooMany, client.Refused)
	trying.Wait()
	trying.Go(func() {
		tries()
		b.Script(func(s *fakebroker.Script) { s.Watch = nil })
	})
	defer trying.Wait()
	w := watch(t, k)
	put(t, k, "k", "v")
	wantTold(t, w, "put k=v")
	w.Close()
	for _, err := range w.Changes(within(t)) {
		wantError(t, err, client.ErrClosed, client.Fatal)
	}
}

// folding is the state that a watch's changes come to.
type folding struct {
	mu    sync.Mutex
	state map[string]string
}

func (f *folding) follow(ctx context.Context, w *client.Watch) error {
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			return err
		}
		f.mu.Lock()
		switch ch.Kind {
		case client.Put:
			f.state[ch.Entry.Key] = string(ch.Entry.Value)
		case client.Deleted, client.Expired:
			delete(f.state, ch.Entry.Key)
		case client.Reset:
			clear(f.state)
		case client.SnapshotComplete:
		}
		f.mu.Unlock()
	}
	return nil
}

// CA-12, S10: snapshots that begin at any moment, on every kind of selection, add up with the changes behind them, also over
// lost connections and when the reader has room for next to nothing.
func TestWatchFoldEqualsTheCache(t *testing.T) {
	b, _, k := cached(t, 3)
	selections := []client.Selector{client.Key("a/3"), client.Prefix("a/"), client.Pattern("+/1"), client.Prefix("")}
	ctx := within(t)
	var writers, watchers sync.WaitGroup
	folds := make([]folding, 24)
	var open []*client.Watch
	defer func() {
		for _, w := range open {
			w.Close()
		}
		watchers.Wait()
	}()
	for i := range 4 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for j := range 40 {
				key := fmt.Sprintf("%c/%d", 'a'+rng.IntN(3), rng.IntN(8))
				if rng.IntN(4) == 0 {
					_, _ = k.Delete(ctx, key)
				} else {
					_, _ = k.Put(ctx, key, fmt.Append(nil, i, ".", j))
				}
				if i == 0 && j%15 == 7 {
					b.KillConnections()
				}
			}
		})
	}
	for i := range folds {
		opts := []client.WatchOption{client.WithSnapshot(), selections[i%len(selections)], client.WatchBuffer(1 << (4 + i%10))}
		if i%2 == 1 {
			opts = append(opts, client.Conflate())
		}
		folds[i].state = map[string]string{}
		w := watch(t, k, opts...)
		watchers.Go(func() {
			wantError(t, folds[i].follow(ctx, w), client.ErrClosed, client.Fatal)
		})
		open = append(open, w)
	}
	writers.Wait()
	for i := range folds {
		want := map[string]string{}
		for e, err := range k.List(ctx, selections[i%len(selections)]) {
			if err != nil {
				t.Fatal(err)
			}
			want[e.Key] = string(e.Value)
		}
		eventually(t, fmt.Sprintf("watch %d: the cache, which is %v", i, want), func() bool {
			folds[i].mu.Lock()
			defer folds[i].mu.Unlock()
			return maps.Equal(folds[i].state, want)
		})
	}
}
