// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"fmt"
	"testing"

	"margay.dev/broker/fanout"
	"margay.dev/wire"
)

// R2: who asks where a subscriber stands that has taken all is handed what was dropped behind its last delivery,
// once. A position beyond the loss without it would be a loss that nobody states.
func TestUntoldLossIsHandedOverWithThePosition(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	q := fanout.NewQueue(fanout.Limits{Records: 4}, fanout.DropNew, nil)
	join(h, q, 0)
	publish(h, 0, 10)
	if _, _, ok := h.Caught(q); ok {
		t.Fatal("a queue that still holds deliveries has caught up")
	}
	if got, _, _ := offsets(q); fmt.Sprint(got) != "[0 1 2 3]" {
		t.Fatalf("took %v", got)
	}
	pos, lost, ok := h.Caught(q)
	if want := (fanout.Range{From: 4, To: 10}); !ok || pos.Offset != 10 || lost != want {
		t.Fatalf("caught up %v at %+v, lost %+v; want %+v", ok, pos, lost, want)
	}
	if _, lost, ok := h.Caught(q); !ok || !lost.Empty() {
		t.Fatalf("asked again: lost %+v", lost)
	}
	publish(h, 10, 11)
	if d := next(t, q); d.BaseOffset != 10 || !d.Lost.Empty() {
		t.Fatalf("the next delivery states a loss again: %+v", d)
	}
}

// R2 of a queue over two shards: drop_old gives up a shard's records for another's, and each shard is handed its
// own loss.
func TestUntoldLossIsOfItsShard(t *testing.T) {
	a, b := fanout.NewHub(0, fanout.Position{}), fanout.NewHub(1, fanout.Position{})
	q := fanout.NewQueue(fanout.Limits{Records: 4}, fanout.DropOld, nil)
	join(a, q, 0)
	join(b, q, 0)
	publish(a, 0, 3)
	for n := range uint64(6) {
		e := env(n)
		e.Shard = 1
		b.Publish([]*fanout.Envelope{e}, fanout.Position{Sequence: n + 1, Offset: n + 1}, 0)
	}
	offsets(q)
	if _, lost, ok := a.Caught(q); !ok || lost != (fanout.Range{From: 0, To: 3}) {
		t.Errorf("shard 0 is handed the loss %+v, caught up %v", lost, ok)
	}
	if _, lost, ok := b.Caught(q); !ok || !lost.Empty() { // what it lost was told with the delivery behind it
		t.Errorf("shard 1 is handed the loss %+v, caught up %v", lost, ok)
	}
}

func next(t *testing.T, q *fanout.Queue) fanout.Delivery {
	t.Helper()
	var taken fanout.Taken
	q.Take(&taken, 1)
	if len(taken.Deliveries) != 1 {
		t.Fatalf("%d deliveries, want one", len(taken.Deliveries))
	}
	return taken.Deliveries[0]
}

// R3: what a subscriber's leaving costs while it holds the hub, which publishers need, follows from its own
// filters and not from how many others there are. Counted in allocations: looking at every prefix makes more.
func TestLeavingDoesNotLookAtOtherSubscribers(t *testing.T) {
	comeAndGo := func(others int) float64 {
		h := fanout.NewHub(0, fanout.Position{})
		filtered := func(i int) *fanout.Queue {
			var fs []wire.Filter
			for j := range 10 {
				fs = append(fs, wire.Filter{Kind: wire.FilterPrefix, Value: fmt.Sprintf("device/%06d/", i*10+j)})
			}
			return fanout.NewQueue(fanout.Limits{}, fanout.DropNew, fanout.NewSelection(fs))
		}
		for i := range others {
			join(h, filtered(1+i), 0)
		}
		q := filtered(0)
		join(h, q, 0)
		return testing.AllocsPerRun(20, func() {
			h.Leave(q)
			join(h, q, 0)
		})
	}
	few, many := comeAndGo(1), comeAndGo(2000)
	if many > few+5 {
		t.Errorf("leaving and joining allocates %v times beside one subscriber, %v times beside 2,000", few, many)
	}
}
