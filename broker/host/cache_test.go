// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/shard"
	"margay.dev/storage/keyindex"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// keeps is a log that keeps the newest record of each key, in small segments.
func keeps(l *control.Log) {
	l.Keep, l.MaxKeys, l.SegmentBytes = control.KeepNewest, 1000, 16<<10
}

// holder publishes to a shard and reads it by key.
type holder struct {
	t    *testing.T
	s    *host.Shard
	a    *hosttest.Answers
	corr uint64
}

func hold(t *testing.T, r *hosttest.Rig, l control.Log) *holder {
	t.Helper()
	return &holder{t: t, s: r.Shard(l.ID, 0), a: hosttest.NewAnswers()}
}

func (h *holder) put(key, val string, edit ...func(*host.Request)) (shard.Ack, *code.Error) {
	h.t.Helper()
	return h.send(batch.Record{Key: []byte(key), Value: []byte(val), Timestamp: 1}, edit...)
}

func (h *holder) send(rec batch.Record, edit ...func(*host.Request)) (shard.Ack, *code.Error) {
	h.t.Helper()
	h.corr++
	r := hosttest.RequestOf(h.t, h.a, h.corr, rec)
	for _, f := range edit {
		f(r)
	}
	return ask(h.t, h.s, h.a, r)
}

// keys is the index, once it is there.
func (h *holder) keys() *keyindex.Index {
	h.t.Helper()
	var x *keyindex.Index
	hosttest.Eventually(h.t, "the keys", func() bool {
		var err *code.Error
		x, err = h.s.Keys(hosttest.Within(h.t))
		return err == nil
	})
	return x
}

func (h *holder) want(key, want string) {
	h.t.Helper()
	hosttest.Eventually(h.t, "a record that reclaiming does not move just then", func() bool {
		e, ok := h.keys().Get([]byte(key))
		if !ok {
			h.t.Fatalf("%s is not there", key)
		}
		stored, err := h.s.Read(nil, e.Sequence, 1)
		if err != nil {
			return false
		}
		r, err := shard.FindRecord(batch.Batch(stored), e.Offset)
		if err != nil || string(r.Value) != want {
			h.t.Fatalf("%s holds %.20q, %v; want %.20q", key, r.Value, err, want)
		}
		return true
	})
}

// A log that keeps the newest of each key gives up its head by itself, carries what lives there, and is the same when it
// is opened again: from its snapshot, from one that is damaged, and without.
func TestReclaimByLiveness(t *testing.T) {
	fs := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(keeps)
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	h := hold(t, r, l)
	want := map[string]string{}
	put := func(key, val string) {
		t.Helper()
		if _, err := h.put(key, val); err != nil {
			t.Fatal(err)
		}
		want[key] = val
	}
	for i := range 20 {
		put(fmt.Sprintf("old%d", i), fmt.Sprintf("%0300d", i))
	}
	for i := range 800 {
		put(fmt.Sprintf("busy%d", i%5), fmt.Sprintf("%0300d", i))
	}
	// Its segments are looked at when one is full.
	hosttest.Eventually(t, "the head to go", func() bool {
		put("busy0", fmt.Sprintf("%0300d", 1))
		st, _ := h.s.LogState()
		return h.s.View().Start.Offset > 20 && st.Bytes < 5*16<<10
	})
	for key, val := range want {
		h.want(key, val)
	}
	snapshot := path.Join(r.Dir.ShardDir(l.ID, 0), keyindex.FileName)
	for _, damage := range []string{"", "damaged", "gone"} {
		v := h.s.View()
		r.Stop()
		switch damage {
		case "damaged":
			f, err := fs.OpenFile(snapshot)
			if err == nil {
				_, err = f.WriteAt([]byte("x"), 40)
			}
			if err != nil && !strings.Contains(err.Error(), "not exist") {
				t.Fatal(err)
			}
		case "gone":
			_ = fs.Remove(snapshot) // a small log has none
		}
		r = hosttest.Start(t, fs, p)
		h = hold(t, r, l)
		for key, val := range want {
			h.want(key, val)
		}
		if n := h.keys().Len(); n != len(want) {
			t.Fatalf("%s: %d keys, want %d", damage, n, len(want))
		}
		if h.s.View().Start != v.Start {
			t.Fatalf("%s: starts at %+v, was %+v", damage, h.s.View().Start, v.Start)
		}
	}
}

// Whoever adds again is told what it came to the first time, also after a restart.
func TestSumsOfARetry(t *testing.T) {
	fs := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(keeps)
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	add := func(h *holder, seq, previous uint64, delta string) (shard.Ack, *code.Error) {
		t.Helper()
		h.keys()
		return h.put("n", delta, func(r *host.Request) {
			b := batch.NewBuilder(batch.Limits{})
			if err := b.Add(batch.Record{Key: []byte("n"), Value: []byte(delta), Timestamp: 1}); err != nil {
				t.Fatal(err)
			}
			made, err := b.Build(7, seq, batch.None)
			if err != nil {
				t.Fatal(err)
			}
			r.Buffer = append(make([]byte, r.Head), made...)
			r.Publish.Batch, r.Publish.Previous = batch.Batch(r.Buffer[r.Head:]), previous
			r.Publish.Derives = []shard.Derive{{Op: shard.OpAdd}}
		})
	}
	h := hold(t, r, l)
	for i, delta := range []string{"5", "7"} {
		if ack, err := add(h, uint64(i+1), uint64(i), delta); err != nil || len(ack.Sums) != 1 {
			t.Fatalf("%+v, %v", ack, err)
		}
	}
	for range 2 {
		if ack, err := add(h, 2, 1, "7"); err != nil || !ack.Duplicate || fmt.Sprint(ack.Sums) != "[12]" {
			t.Fatalf("the retry: %+v, %v", ack, err)
		}
		h.want("n", "12")
		r.Stop()
		r = hosttest.Start(t, fs, p)
		h = hold(t, r, l)
	}
}

// A key that ended while nobody led the shard is absent from the start on, and its tombstone comes by itself.
func TestKeysThatEndedMeanwhile(t *testing.T) {
	fs := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(keeps)
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	h := hold(t, r, l)
	h.corr++
	q := hosttest.RequestOf(t, h.a, h.corr, batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 1, TTL: time.Hour})
	if _, err := ask(t, h.s, h.a, q); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r = hosttest.Start(t, fs, p, func(c *host.Config) {
		c.Wall = func() time.Time { return time.Now().Add(2 * time.Hour) }
	})
	h = hold(t, r, l)
	hosttest.Eventually(t, "the tombstone", func() bool { return h.s.View().Ceiling == 2 })
	if _, ok := h.keys().Get([]byte("k")); ok {
		t.Fatal("the key is there")
	}
}

// A log in memory is reclaimed in the same way, refuses what does not fit, and loses no key.
func TestReclaimInMemory(t *testing.T) {
	l := hosttest.Log(func(l *control.Log) {
		l.Keep, l.MaxKeys, l.Storage, l.Fsync = control.KeepNewest, 1000, control.StorageMemory, control.FsyncAlways
	})
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
	h := hold(t, r, l)
	val := strings.Repeat("x", 1<<20)
	put := func(key string) *code.Error {
		_, err := h.put(key, val)
		return err
	}
	for i := range 20 {
		if err := put(fmt.Sprintf("old%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 { // far more than a log in memory holds
		hosttest.Eventually(t, "room", func() bool { return put("busy") == nil })
	}
	for i := range 20 {
		h.want(fmt.Sprintf("old%d", i), val)
	}
	var refused *code.Error
	for i := 0; i < 100 && refused == nil; i++ {
		refused = put(fmt.Sprintf("new%d", i))
	}
	wantRefusal(t, refused, code.StorageFull)
	h.want("old0", val)
}

// A log in memory that is full of what lives takes records again once that has ended or is deleted.
func TestFullMemoryEmptiesItself(t *testing.T) {
	val := bytes.Repeat([]byte("x"), 1<<20)
	ways := map[string]func(h *holder, ahead *atomic.Int64){
		"expiry": func(_ *holder, ahead *atomic.Int64) { ahead.Store(int64(2 * time.Hour)) },
		"deletion": func(h *holder, _ *atomic.Int64) {
			for i := range 30 {
				if _, err := h.send(batch.Record{Key: fmt.Appendf(nil, "k%d", i), Timestamp: 1}); err != nil {
					t.Fatalf("delete of k%d: %v", i, err)
				}
			}
		},
	}
	for name, empty := range ways {
		t.Run(name, func(t *testing.T) {
			l := hosttest.Log(func(l *control.Log) {
				l.Keep, l.MaxKeys, l.Storage, l.Fsync = control.KeepNewest, 1000, control.StorageMemory, control.FsyncAlways
			})
			var ahead atomic.Int64
			r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l), func(c *host.Config) {
				c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			h := hold(t, r, l)
			var refused *code.Error
			for i := 0; i < 100 && refused == nil; i++ {
				_, refused = h.send(batch.Record{Key: fmt.Appendf(nil, "k%d", i), Value: val, Timestamp: 1, TTL: time.Hour})
			}
			wantRefusal(t, refused, code.StorageFull)
			empty(h, &ahead)
			hosttest.Eventually(t, "room", func() bool { _, err := h.put("again", string(val)); return err == nil })
			h.want("again", string(val))
		})
	}
}

// A key that was told to be absent stays so when the clock is set back, for whoever reads and for whoever writes.
func TestExpiryWithAClockThatGoesBack(t *testing.T) {
	var ahead atomic.Int64
	l := hosttest.Log(keeps)
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l), func(c *host.Config) {
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	h := hold(t, r, l)
	h.corr++
	q := hosttest.RequestOf(t, h.a, h.corr, batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 1, TTL: time.Hour})
	if _, err := ask(t, h.s, h.a, q); err != nil {
		t.Fatal(err)
	}
	e, ok := h.keys().Get([]byte("k"))
	if v := h.s.View(); !ok || !v.Holds(e, h.s.Now()) {
		t.Fatal("the key is not there")
	}
	ahead.Store(int64(2 * time.Hour))
	v := h.s.View()
	if v.Holds(e, h.s.Now()) {
		t.Fatal("the key is there behind its end")
	}
	ahead.Store(0)
	if v.Holds(e, h.s.Now()) {
		t.Fatal("the key has come back")
	}
	if _, err := h.put("k", "w", func(r *host.Request) { r.Publish.Conditions = []shard.Condition{{}} }); err != nil {
		t.Fatalf("who was told that it is absent cannot make it: %v", err)
	}
}

// A head that holds more than one turn carries is carried in several, each from where the last one ended, also inside a
// batch.
func TestReclaimInSeveralTurns(t *testing.T) {
	l := hosttest.Log(func(l *control.Log) { l.Keep, l.MaxKeys, l.SegmentBytes = control.KeepNewest, 100_000, 2<<20 })
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
	h := hold(t, r, l)
	put := func(from, n int, val string) {
		t.Helper()
		recs := make([]batch.Record, n)
		for i := range recs {
			recs[i] = batch.Record{Key: fmt.Appendf(nil, "k%d", from+i), Value: []byte(val), Timestamp: 1}
		}
		h.corr++
		if _, err := ask(t, h.s, h.a, hosttest.RequestOf(t, h.a, h.corr, recs...)); err != nil {
			t.Fatal(err)
		}
	}
	live := strings.Repeat("x", 733)
	for i := range 3 { // batches of 700 KiB: most of the first segment, and all of it lives
		put(i*1000, 1000, live)
	}
	for i := range 12 {
		put(3000, 1000, fmt.Sprintf("%0733d", i))
	}
	hosttest.Eventually(t, "the head to go", func() bool {
		put(3000, 100, live)
		return h.s.View().Start.Offset >= 3000
	})
	for i := range 3000 {
		h.want(fmt.Sprintf("k%d", i), live)
	}
}

// Records so small that they take more where they are carried to than where they were do not look as if nothing was given
// up: the heads of their log go one after the other, without a pause (the clock stands still).
func TestReclaimOfSmallRecords(t *testing.T) {
	at := time.Now()
	l := hosttest.Log(keeps)
	l.MaxKeys = 100_000
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l), func(c *host.Config) {
		c.Wall = func() time.Time { return at }
	})
	h := hold(t, r, l)
	put := func(from, by int, value []byte) {
		t.Helper()
		recs := make([]batch.Record, 0, 100)
		for i := range 100 {
			recs = append(recs, batch.Record{Key: fmt.Appendf(nil, "k%d", from+i*by), Value: value, Timestamp: 1})
		}
		h.corr++
		if _, err := ask(t, h.s, h.a, hosttest.RequestOf(t, h.a, h.corr, recs...)); err != nil {
			t.Fatal(err)
		}
	}
	const keys = 10_000
	for from := 0; from < keys; from += 100 {
		put(from, 1, []byte("x"))
	}
	for from := 0; from < keys; from += 200 { // every second one goes
		put(from, 2, nil)
	}
	hosttest.Eventually(t, "the heads to go", func() bool {
		for range 10 {
			put(1_000_000, 1, []byte("x"))
		}
		return h.s.View().Start.Offset >= keys
	})
	if n := h.keys().Len(); n != keys/2+100 {
		t.Fatalf("%d keys, want %d", n, keys/2+100)
	}
	h.want("k9999", "x")
}
