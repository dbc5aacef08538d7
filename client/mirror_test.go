// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
)

func mirror(t testing.TB, k *client.Cache, opts ...client.WatchOption) *client.Mirror {
	t.Helper()
	m, err := k.Mirror(within(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func keysOf(m *client.Mirror, prefix string) (keys []string) {
	for e := range m.Range(prefix) {
		keys = append(keys, e.Key+"="+string(e.Value))
	}
	return keys
}

func TestMirrorFollows(t *testing.T) {
	b, _, k := cached(t, 3)
	put(t, k, "a/1", "one", client.Headers(client.Header{Key: "h", Value: []byte("x")}))
	put(t, k, "a/2", "two")
	put(t, k, "b/1", "other")
	m := mirror(t, k, client.Prefix("a/"))
	if got := keysOf(m, ""); !slices.Equal(got, []string{"a/1=one", "a/2=two"}) || m.Len() != 2 {
		t.Fatalf("it begins with %q", got)
	}
	if e, ok := m.Get("a/1"); !ok || len(e.Headers) != 1 || e.Version == 0 {
		t.Fatalf("%+v, %v", e, ok)
	}
	if _, ok := m.Get("b/1"); ok {
		t.Fatal("it has a key of another prefix")
	}
	wait := func(key string, version uint64) {
		t.Helper()
		if err := m.WaitFor(within(t), key, version); err != nil {
			t.Fatal(err)
		}
	}
	wait("a/3", put(t, k, "a/3", "three"))
	v, err := k.Delete(within(t), "a/1")
	if err != nil {
		t.Fatal(err)
	}
	wait("a/1", v)
	if got := keysOf(m, "a/"); !slices.Equal(got, []string{"a/2=two", "a/3=three"}) {
		t.Fatalf("then it has %q", got)
	}
	for range m.Range("") { // one that is not finished holds nobody up
		wait("a/4", put(t, k, "a/4", "four"))
		break
	}
	wait("a/5", put(t, k, "a/5", "short", client.TTL(time.Nanosecond)))
	if e, ok := m.Get("a/5"); ok {
		t.Fatalf("it has %+v, which is over", e)
	}
	b.Stop()
	if e, ok := m.Get("a/4"); !ok || string(e.Value) != "four" || m.Err() != nil {
		t.Fatalf("without a broker: %+v, %v", e, m.Err())
	}
	b.Start()
	wait("a/4", put(t, k, "a/4", "back"))
	wantError(t, m.WaitFor(within(t), "b/1", 1), client.ErrBadRequest, client.Fatal)
	m.Close()
	wantError(t, m.Err(), client.ErrClosed, client.Fatal)
	wantError(t, m.WaitFor(within(t), "a/4", 1<<60), client.ErrClosed, client.Fatal)
	_, err = k.Mirror(within(t), client.FromNow())
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

// Until a snapshot that follows a loss is complete, readers see what was known; then they see what is.
func TestMirrorIsResetAsAWhole(t *testing.T) {
	b, l, k := cached(t, 1)
	for i := range 20 {
		put(t, k, fmt.Sprintf("k%02d", i), "old")
	}
	m := mirror(t, k)
	b.Script(func(s *fakebroker.Script) { s.MaxEntries = 2 })
	b.Stop() // what the mirror misses while it is away is reclaimed
	b.Change(func() { l.Shards[0].Cut(5) })
	b.Start()
	eventually(t, "the snapshot behind the loss", func() bool {
		n := 0
		for range m.Range("") {
			n++
		}
		if n != 20 && n != 5 {
			t.Fatalf("readers see a part: %d keys", n)
		}
		return n == 5
	})
	if err := m.WaitFor(within(t), "k05", put(t, k, "k05", "new")); err != nil || m.Len() != 6 {
		t.Fatalf("%d keys, %v", m.Len(), err)
	}
}

// What is deleted while the snapshot is read is in no page and in no change: the mirror knows all the same how far it is.
func TestMirrorWaitsForWhatItsSnapshotHas(t *testing.T) {
	b, _, k := cached(t, 1)
	put(t, k, "a", "1")
	var deleted atomic.Uint64
	b.Script(func(s *fakebroker.Script) {
		s.List = func() { // between the watch and the page
			if deleted.Load() == 0 {
				v, err := k.Delete(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				deleted.Store(v)
			}
		}
	})
	m := mirror(t, k)
	if err := m.WaitFor(within(t), "a", deleted.Load()); err != nil || m.Len() != 0 || deleted.Load() == 0 {
		t.Fatalf("%d keys, deleted as version %d, %v", m.Len(), deleted.Load(), err)
	}
}

func TestClientClosesMirrors(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 2)
	c := connect(t, b)
	m := mirror(t, c.Cache("orders"))
	c.Close()
	wantError(t, m.Err(), client.ErrClosed, client.Fatal)
	m.Close()
	if _, err := c.Cache("orders").Mirror(within(t)); err == nil {
		t.Fatal("a closed client makes mirrors")
	}
}
