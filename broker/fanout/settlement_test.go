// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"testing"

	"margay.dev/broker/fanout"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// What a batch settles is for the leader: who is live gets its records in a slice, whatever it selects, and reading the log
// does not pass it on whole.
func TestSettlementsAreNotDelivered(t *testing.T) {
	for _, ttl := range []bool{false, true} {
		builder := batch.NewBuilder(batch.Limits{})
		for range 2 {
			r := batch.Record{Key: []byte("k"), Timestamp: 1}
			if ttl {
				r.TTL = batch.MaxSchedule
			}
			if err := builder.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: []batch.SettledToken{{HandOut: 1}}}); err != nil {
			t.Fatal(err)
		}
		b, err := builder.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		b.Assign(batch.Assigned{Generation: 1})
		filters := []wire.Filter{{Kind: wire.FilterExact, Value: "k"}}
		for _, s := range []*fanout.Selection{nil, fanout.NewSelection(filters)} {
			if keep, all := s.Select(b, 0, nil); all || len(keep) != 2 {
				t.Errorf("selection %v: %v, whole %v", s, keep, all)
			}
			h := fanout.NewHub(0, fanout.Position{})
			q := fanout.NewQueue(fanout.Limits{}, fanout.DropNew, s)
			join(h, q, 0)
			h.Publish([]*fanout.Envelope{{Frame: wire.AppendFrame(nil, 0, &wire.Deliver{Batch: b}), Batch: b}}, fanout.Position{Sequence: 1, Offset: 2}, 0)
			var taken fanout.Taken
			q.Take(&taken, 1<<20)
			if len(taken.Deliveries) != 1 || taken.Deliveries[0].Records != 2 {
				t.Fatalf("selection %v: %+v", s, taken.Deliveries)
			}
			if h, err := wire.ParseHeader([wire.HeaderSize]byte(taken.Deliveries[0].Frame)); err != nil || h.Type != wire.TypeDeliverSlice {
				t.Errorf("selection %v: it goes out as %v, %v", s, h.Type, err)
			}
		}
	}
}
