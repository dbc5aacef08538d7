// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/shard"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
)

// The commits of cursors that come while a flush is under way are one batch, and share the next flush, however many
// subscriptions they are from; each is answered for itself, and none before that flush.
func TestCommitsOfCursorsShareABatch(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(nil)
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	const n = 200
	if err := s.Submit(hosttest.Request(t, a, 0, hosttest.Value(0), hosttest.Value(1))); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the records", func() bool { return a.N.Load() == 1 })
	epochs := make([]uint64, n)
	for i := range n {
		got, err := s.Do(hosttest.Within(t), func(to any) shard.Event {
			return &shard.OpenCursor{Name: fmt.Sprintf("c%d", i), Create: true, To: to}
		})
		if err != nil {
			t.Fatal(err)
		}
		epochs[i] = got.Cursor.Epoch
	}

	release, entered := make(chan struct{}), make(chan struct{}, 100)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	var answered, failed atomic.Int64
	commit := func(i int) {
		to := host.Func(func(a shard.Answer) {
			if a.Err != nil {
				failed.Add(1)
			}
			answered.Add(1)
		})
		ev := &shard.CommitCursors{List: []shard.CursorCommit{{Name: fmt.Sprintf("c%d", i), Epoch: epochs[i], Offset: 1, To: to}}}
		if err := s.Post(ev, to); err != nil {
			t.Error(err)
		}
	}
	length := s.View().Length
	commit(0)
	<-entered // the disk is flushing the first
	for i := 1; i < n; i++ {
		commit(i)
	}
	if answered.Load() != 0 {
		t.Fatalf("%d commits were answered before a flush", answered.Load())
	}
	close(release)
	hosttest.Eventually(t, "the commits to be answered", func() bool { return answered.Load() == n })
	hosttest.Eventually(t, "the view to follow", func() bool { return s.View().Length > length+1 })
	// The first, and the rest together; the view that the length was taken from may have lagged by an opening.
	if got := s.View().Length - length; got > 4 || failed.Load() != 0 {
		t.Errorf("%d commits became %d batches; %d failed", n, got, failed.Load())
	}
}
