// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// Whatever way a record was written, and whatever a log keeps, all readings are of one log: the stream has every write at
// its offset, a read by key has the one its version names, a watch tells each once and in order, and a list at the end is
// what the stream folds up to.
func TestOneLogIsReadAsAStreamAndByKey(t *testing.T) {
	for _, keep := range []string{control.KeepAll, control.KeepNewest} {
		t.Run(keep, func(t *testing.T) {
			n := margaytest.Start(t)
			create(t, n, control.StreamSpec{Name: "it", Shards: new(3), Keep: &keep})
			testOneLog(t, n.Connect())
		})
	}
}

const (
	oneLogWriters, oneLogWrites = 4, 150
	oneLogKeys                  = 7
)

// written is the newest of a key, or what a version of it was; value is nil for a deletion.
type written struct {
	version uint64
	value   []byte
}

func testOneLog(t *testing.T, c *client.Client) {
	tail := subscribe(t, c, "it", client.FromEarliest())
	k := c.Cache("it")
	w, err := k.Watch(within(t), client.WithSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for ch, err := range w.Changes(within(t)) { // what is read later may have what was written meanwhile in its snapshot
		if err != nil || ch.Kind != client.SnapshotComplete {
			t.Fatalf("the snapshot of nothing begins with %v, %v", ch.Kind, err)
		}
		break
	}

	var writers, readers sync.WaitGroup
	over := make(chan struct{})
	for i := range oneLogWriters {
		writers.Go(func() { writeOneLog(t, c, i) })
	}
	var mu sync.Mutex
	got := map[string]map[uint64][]byte{} // by key and version: what was read by key
	for range 2 {
		readers.Go(func() { readOneLog(t, k, over, &mu, got) })
	}
	writers.Wait()
	close(over)
	readers.Wait()

	const total = oneLogWriters * oneLogWrites
	recs := take(t, tail, total)
	contiguous(t, recs)
	all, newest := foldStream(recs)
	for key, versions := range got {
		for version, value := range versions {
			if was := all[key][version]; was == nil || string(was) != string(value) {
				t.Errorf("a get of %s had version %d as %q, and the stream has %q there", key, version, value, was)
			}
		}
	}
	wantWatched(t, w, all, total)
	listed := 0
	for e, err := range k.List(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		listed++
		if want := newest[e.Key]; e.Version != want.version || string(e.Value) != string(want.value) || want.value == nil {
			t.Errorf("%s is listed at version %d as %q, and the stream ends with %+v", e.Key, e.Version, e.Value, want)
		}
	}
	for _, is := range newest {
		if is.value != nil {
			listed--
		}
	}
	if listed != 0 {
		t.Errorf("the list has %+d keys of what the stream has", listed)
	}
}

// writeOneLog writes in every way there is.
func writeOneLog(t *testing.T, c *client.Client, writer int) {
	k, p := c.Cache("it"), c.Publisher("it")
	ctx := within(t)
	for i := range oneLogWrites {
		key, value := fmt.Sprintf("k%d", i%oneLogKeys), fmt.Appendf(nil, "v%d-%d", writer, i)
		var err error
		switch i % 5 {
		case 0:
			_, err = k.Delete(ctx, key)
		case 1:
			_, _, err = k.Add(ctx, "count", 1)
		case 2:
			_, err = k.Put(ctx, key, value)
		default:
			_, err = p.Publish(ctx, client.Record{Key: []byte(key), Value: value})
		}
		if err != nil {
			t.Errorf("write %d of %d: %v", i, writer, err)
			return
		}
	}
}

// readOneLog reads keys until over; the version of a key never falls.
func readOneLog(t *testing.T, k *client.Cache, over <-chan struct{}, mu *sync.Mutex, got map[string]map[uint64][]byte) {
	ctx := within(t)
	last := map[string]uint64{}
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		default:
		}
		key := fmt.Sprintf("k%d", i%oneLogKeys)
		e, err := k.Get(ctx, key)
		if errors.Is(err, client.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		if e.Version < last[key] {
			t.Errorf("%s was at version %d and then at %d", key, last[key], e.Version)
		}
		last[key] = e.Version
		mu.Lock()
		if got[key] == nil {
			got[key] = map[uint64][]byte{}
		}
		got[key][e.Version] = e.Value
		mu.Unlock()
	}
}

// foldStream says what each version of a key was, and what each key is in the end.
func foldStream(recs []client.Record) (all map[string]map[uint64][]byte, newest map[string]written) {
	all, newest = map[string]map[uint64][]byte{}, map[string]written{}
	for i := range recs {
		r := &recs[i]
		key := string(r.Key)
		if all[key] == nil {
			all[key] = map[uint64][]byte{}
		}
		all[key][r.Version()] = r.Value
		newest[key] = written{r.Version(), r.Value}
	}
	return all, newest
}

// wantWatched demands each write once from a watch, those of a key in their order.
func wantWatched(t *testing.T, w *client.Watch, all map[string]map[uint64][]byte, total int) {
	last := map[string]uint64{}
	told := 0
	for ch, err := range w.Changes(within(t)) {
		if err != nil {
			t.Fatalf("after %d of %d changes: %v", told, total, err)
		}
		e := &ch.Entry
		value, ok := all[e.Key][e.Version]
		if !ok || e.Version <= last[e.Key] || (ch.Kind == client.Put) != (value != nil) || string(value) != string(e.Value) {
			t.Errorf("told %v %s version %d as %q behind version %d, and the stream has %q", ch.Kind, e.Key, e.Version, e.Value, last[e.Key], value)
		}
		last[e.Key] = e.Version
		if told++; told == total {
			return
		}
	}
}
