// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/queue"
	"margay.dev/broker/shard"
	"margay.dev/wire"
)

// browseAll goes through all pages.
func (r *onDisk) browseAll(f wire.Browse) (out []wire.BrowsedMessage) {
	r.t.Helper()
	for pages := 0; ; pages++ {
		got, err := queue.Browse(r.t.Context(), r.shard(0), &f)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(got.Messages) > int(f.Limit) || pages > 2000 || got.More && f.HasAfter && got.Next <= f.After {
			r.t.Fatalf("page %d behind %d has %d messages, and goes on at %d", pages, f.After, len(got.Messages), got.Next)
		}
		out = append(out, got.Messages...)
		if !got.More {
			return out
		}
		f.HasAfter, f.After = true, got.Next
	}
}

// states is how each message stands, by asking for it alone.
func (r *onDisk) states(delayed map[uint64]bool) map[uint64]wire.MessageState {
	r.t.Helper()
	is := map[group.State]wire.MessageState{
		group.StateReady: wire.MessageReady, group.StateDelayed: wire.MessageDelayed, group.StateInFlight: wire.MessageInFlight, group.StateDead: wire.MessageDead,
	}
	out := map[uint64]wire.MessageState{}
	if _, err := r.shard(0).Do(r.t.Context(), func(to any) shard.Event {
		return &shard.Inspect{Look: func(v *group.View) {
			for o := range r.shard(0).View().Ceiling {
				st, _ := v.StateOf("workers", o)
				if s := is[st.State]; s == wire.MessageReady && delayed[o] {
					out[o] = wire.MessageDelayed
				} else if s != 0 {
					out[o] = s
				}
			}
		}, To: to}
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestBrowseFindsWhatTheGroupHas: of each state what is in it, in order, on pages of any size, wherever messages lie.
func TestBrowseFindsWhatTheGroupHas(t *testing.T) {
	onHost(t, func(t *testing.T, r *onDisk) {
		rng := rand.New(rand.NewPCG(4, 4))
		x := r.consume(150)
		delayed := map[uint64]bool{}
		next := uint64(0)
		for range 150 {
			recs := some(rng, 1+rng.IntN(3), 300)
			for i := range recs {
				if rng.IntN(4) == 0 {
					recs[i].Delay = time.Hour
					delayed[next+uint64(i)] = true
				}
			}
			if err := r.push(0, nil, recs...); err != nil {
				t.Fatal(err)
			}
			next += uint64(len(recs))
			for _, m := range x.poll() {
				switch rng.IntN(12) {
				case 0:
					x.settle(wire.SettleReject, m)
				case 1, 2, 3, 4, 5, 6:
					x.settle(wire.SettleAck, m)
				case 7: // it comes again soon
					x.settle(wire.SettleNack, m)
				}
			}
		}
		x.lane.Flow(&wire.Flow{})
		for _, m := range x.poll() {
			if rng.IntN(3) == 0 {
				x.settle(wire.SettleRelease, m)
			}
		}
		is := r.states(delayed)
		for states := wire.MessageState(1); states < wire.MessageRecord; states++ {
			for _, limit := range []uint32{1, 7, 1000} {
				var want []uint64
				for o := range next {
					if is[o]&states != 0 {
						want = append(want, o)
					}
				}
				var got []uint64
				for _, m := range r.browseAll(wire.Browse{Group: "workers", States: states, Limit: limit, Filter: wire.Filter{Kind: wire.FilterAll}}) {
					got = append(got, m.Offset)
					if m.State != is[m.Offset] {
						t.Errorf("%d is %v, want %v", m.Offset, m.State, is[m.Offset])
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("in %b, %d at a time: got %v, want %v", states, limit, got, want)
				}
			}
		}
		start := r.shard(0).View().Start.Offset
		all := r.browseAll(wire.Browse{States: wire.MessageRecord, Limit: 9, Filter: wire.Filter{Kind: wire.FilterAll}})
		if len(all) != int(next-start) {
			t.Errorf("the log has %d records, want %d", len(all), next-start)
		}
		if start == 0 {
			t.Error("nothing was carried: the test shows less than it should")
		}
	})
}
