// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/shard"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// keyed is a publish of one record with a key, under conditions or not.
func keyed(t *testing.T, a *hosttest.Answers, corr uint64, key string, conds ...shard.Condition) *host.Request {
	t.Helper()
	r := hosttest.RequestOf(t, a, corr, batch.Record{Key: []byte(key), Value: make([]byte, 10<<10), Timestamp: 1})
	r.Publish.Conditions = conds
	return r
}

// ask submits a request and returns what it is answered.
func ask(t *testing.T, s *host.Shard, a *hosttest.Answers, r *host.Request) (shard.Ack, *code.Error) {
	t.Helper()
	if err := s.Submit(r); err != nil {
		t.Fatal(err)
	}
	var (
		ack shard.Ack
		err *code.Error
	)
	hosttest.Eventually(t, "an answer", func() bool {
		a.Mu.Lock()
		defer a.Mu.Unlock()
		var ok bool
		err = a.Errs[r.Correlation]
		ack, ok = a.Acks[r.Correlation]
		return ok || err != nil
	})
	return ack, err
}

func wantRefusal(t *testing.T, err *code.Error, c code.Code) {
	t.Helper()
	if err == nil || err.Code != c || err.Class != code.ClassRefused {
		t.Fatalf("refused with %+v, want %v", err, c)
	}
}

// The first condition makes the shard read its log; publishes go on meanwhile and count, whoever asks is told to come
// again.
func TestVersionsAreReadBesideThePublishers(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 3 << 19 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	corr := uint64(0)
	publish := func(key string, conds ...shard.Condition) (shard.Ack, *code.Error) {
		t.Helper()
		corr++
		return ask(t, s, a, keyed(t, a, corr, key, conds...))
	}
	for i := range 300 {
		if _, err := publish(fmt.Sprintf("k%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	release, entered := make(chan struct{}), make(chan struct{}, 1000)
	slow := &faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}, Path: func(p string) bool { return strings.HasSuffix(p, ".seg") }, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}}
	fs.Add(slow)
	_, err := publish("k7", shard.Condition{Version: 8})
	wantRefusal(t, err, code.Opening)
	if err.RetryAfter <= 0 {
		t.Error("not told when to come again")
	}
	<-entered // the disk is reading
	_, err = publish("k7", shard.Condition{Version: 8})
	wantRefusal(t, err, code.Opening)
	for _, key := range []string{"k7", "new"} {
		if _, err := publish(key); err != nil {
			t.Fatalf("a publish without a condition waits for the log: %v", err)
		}
	}
	close(release)
	hosttest.Eventually(t, "the table", func() bool {
		_, err = publish("k7", shard.Condition{Version: 8})
		return err == nil || err.Code != code.Opening
	})
	if have, _ := err.Details.Get(code.DetailLatest); err.Code != code.Conflict || have != 301 {
		t.Fatalf("a version from before the log was read: %v", err)
	}
	want := map[string]uint64{"k7": 301, "new": 302, "never": 0}
	for i := range uint64(300) {
		if i != 7 {
			want[fmt.Sprintf("k%d", i)] = i + 1
		}
	}
	for key, v := range want {
		if _, err := publish(key, shard.Condition{Version: v}); err != nil {
			t.Errorf("%s at version %d: %v", key, v, err)
		}
	}
}

// A shard that ends while its log is read ends all the same.
func TestVersionsAndTheEnd(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	for i := range uint64(200) {
		if _, err := ask(t, s, a, keyed(t, a, i, "k")); err != nil {
			t.Fatal(err)
		}
	}
	release, entered := make(chan struct{}), make(chan struct{}, 1000)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	_, err := ask(t, s, a, keyed(t, a, 1000, "k", shard.Condition{}))
	wantRefusal(t, err, code.Opening)
	<-entered
	stopped := make(chan struct{})
	go func() { r.Stop(); close(stopped) }()
	close(release)
	<-stopped
}

// A log that cannot be read refuses conditions and says so; when it can, they are served.
func TestVersionsOfALogThatCannotBeRead(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(nil)
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	if _, err := ask(t, s, a, keyed(t, a, 0, "k")); err != nil {
		t.Fatal(err)
	}
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}, Err: syscall.EIO, Max: 1})
	corr := uint64(1)
	next := func() (err *code.Error) {
		corr++
		_, err = ask(t, s, a, keyed(t, a, corr, "k", shard.Condition{Version: 1}))
		return err
	}
	var err *code.Error
	hosttest.Eventually(t, "the reason", func() bool { err = next(); return err != nil && err.Code != code.Opening })
	wantRefusal(t, err, code.Unavailable)
	if _, err := ask(t, s, a, keyed(t, a, corr+1, "other")); err != nil {
		t.Fatalf("a publish without a condition: %v", err)
	}
	corr++
	hosttest.Eventually(t, "the next try", func() bool { return next() == nil })
}

// The tables of all shards share what the node has for them: who finds nothing left is refused, the one that grows over
// it goes, and what is given back serves others.
func TestVersionsShareTheMemory(t *testing.T) {
	l := hosttest.Log(func(l *control.Log) { l.Shards = 2 })
	p := hosttest.NewPlane(l)
	var ahead atomic.Int64
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), p, func(c *host.Config) {
		c.KeyBytes = 30_000 // about 230 keys
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	a := hosttest.NewAnswers()
	corr := uint64(0)
	publish := func(s *host.Shard, key string, conds ...shard.Condition) *code.Error {
		t.Helper()
		corr++
		_, err := ask(t, s, a, keyed(t, a, corr, key, conds...))
		return err
	}
	compare := func(s *host.Shard) (err *code.Error) {
		t.Helper()
		hosttest.Eventually(t, "the shard to have read its log", func() bool {
			err = publish(s, "k0", shard.Condition{Version: 9999})
			return err.Code != code.Opening
		})
		return err
	}
	fill := func(s *host.Shard, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := publish(s, fmt.Sprintf("k%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantBytes := func(least, most float64) {
		t.Helper()
		if got := gauge(t, r, "margay_key_index_bytes"); got < least || got > most {
			t.Errorf("the tables take %v bytes, want %v to %v", got, least, most)
		}
	}
	one, two := r.Shard(l.ID, 0), r.Shard(l.ID, 1)
	fill(one, 0, 200)
	fill(two, 0, 200)
	if err := compare(one); err.Code != code.Conflict {
		t.Fatalf("the first shard: %v", err)
	}
	wantBytes(20_000, 28_000)
	wantRefusal(t, compare(two), code.TooMany)
	fill(two, 200, 210)
	hosttest.Eventually(t, "what the second had taken", func() bool { return gauge(t, r, "margay_key_index_bytes") < 28_000 })
	fill(one, 200, 350)
	wantRefusal(t, compare(one), code.TooMany)
	wantBytes(0, 0)
	ahead.Add(int64(2 * time.Minute))
	if err := compare(two); err.Code != code.Conflict {
		t.Fatalf("the second shard, with room: %v", err)
	}
	wantBytes(20_000, 28_000)
	l.SegmentAge = time.Hour
	p.Set(l) // opens the shards again
	hosttest.Eventually(t, "the memory to be given back", func() bool { return gauge(t, r, "margay_key_index_bytes") == 0 })
}

// gauge reads one of the host's metrics.
func gauge(t *testing.T, r *hosttest.Rig, name string) float64 {
	t.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
