// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// What a leader carried is in the log and comes to no subscriber: neither as records nor as a gap, whole or filtered.
func TestCarriedRecordsAreNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
		fs, plane := memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l)
		rig := hosttest.Start(t, fs, plane)
		b := &bench{t: t, log: l, shard: rig.Shard(l.ID, 0), lane: hosttest.NewAnswers()}
		b.publish(10)
		rig.Stop()
		carry(t, rig, l.ID)

		b.shard = hosttest.Start(t, fs, plane).Shard(l.ID, 0)
		b.publish(10)
		got, gaps := offsets(t, b.subscribe(&wire.Subscribe{}, wire.Start{Kind: wire.StartEarliest}, false).finish())
		if !slices.Equal(got, upTo(0, 20)) || len(gaps) > 0 {
			t.Errorf("it got %v and was told of %v", got, gaps)
		}
		filter := &wire.Subscribe{Filters: []wire.Filter{{Kind: wire.FilterExact, Value: "k0"}}}
		var values []string
		for _, x := range b.subscribe(filter, wire.Start{Kind: wire.StartEarliest}, false).finish() {
			values = append(values, x.Values...)
		}
		var want []string
		for n := 0; n < 20; n += 2 {
			want = append(want, fmt.Sprint(n))
		}
		if !slices.Equal(values, want) {
			t.Errorf("of k0 it got %v, want %v", values, want)
		}
	})
}

// carry appends to the log of a host that has stopped what its leader would, before it drops the first segment.
func carry(t *testing.T, r *hosttest.Rig, id batch.LogID) {
	t.Helper()
	appendTo(t, r, id, 3, func() (batch.Batch, error) {
		return batch.BuildCarried([]batch.Carried{
			{Record: batch.Record{Key: []byte("k0"), Value: []byte("carried")}, Offset: 0},
			{Record: batch.Record{Key: []byte("k1"), Value: []byte("carried")}, Offset: 1},
		}, batch.None)
	})
}

// appendTo appends batches to the log of a host that has stopped.
func appendTo(t *testing.T, r *hosttest.Rig, id batch.LogID, count int, build func() (batch.Batch, error)) {
	t.Helper()
	var last batch.Batch
	log, _, err := storage.Open(storage.Options{FS: r.FS, Dir: r.Dir.ShardDir(id, 0), ID: id}, func(b batch.Batch) error {
		last = slices.Clone(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		b, err := build()
		if err != nil {
			t.Fatal(err)
		}
		st := log.State()
		b.Assign(batch.Assigned{
			Sequence: st.Length, BaseOffset: st.NextOffset, Generation: last.Generation(), AppendTime: last.AppendTime(), Flushed: st.Flushed,
		})
		if err := log.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
