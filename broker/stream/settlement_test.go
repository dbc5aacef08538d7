// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// What a batch settles is for the leader: a subscriber that reads it from the log gets all of its records, in a slice.
func TestSettlementsAreNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
		fs, plane := memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l)
		rig := hosttest.Start(t, fs, plane)
		b := &bench{t: t, log: l, shard: rig.Shard(l.ID, 0), lane: hosttest.NewAnswers()}
		b.publish(3)
		rig.Stop()
		appendTo(t, rig, l.ID, 2, func() (batch.Batch, error) {
			builder := batch.NewBuilder(batch.Limits{})
			for _, v := range []string{"a", "b"} {
				if err := builder.Add(batch.Record{Key: []byte("k0"), Value: []byte(v), Timestamp: 1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: []batch.SettledToken{{HandOut: 1}}}); err != nil {
				t.Fatal(err)
			}
			return builder.Build(0, 0, batch.Zstd)
		})

		b.shard = hosttest.Start(t, fs, plane).Shard(l.ID, 0)
		filter := []wire.Filter{{Kind: wire.FilterExact, Value: "k0"}}
		for _, req := range []*wire.Subscribe{{}, {Filters: filter}} {
			var values []string
			for _, x := range b.subscribe(req, wire.Start{Kind: wire.StartEarliest}, false).finish() {
				if slices.Contains(x.Values, "a") && x.Type != wire.TypeDeliverSlice {
					t.Errorf("filters %v: a batch that settles goes out as %v", req.Filters, x.Type)
				}
				values = append(values, x.Values...)
			}
			want := []string{"0", "1", "2", "a", "b", "a", "b"}
			if len(req.Filters) > 0 {
				want = []string{"0", "2", "a", "b", "a", "b"}
			}
			if !slices.Equal(values, want) {
				t.Errorf("filters %v: it got %v, want %v", req.Filters, values, want)
			}
		}
	})
}
