// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/broker/fanout"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

var levels = rapid.SampledFrom([]string{"", "a", "b", "aa", "device", "7"})

func drawKey(t *rapid.T) []byte {
	if rapid.IntRange(0, 9).Draw(t, "no key") == 0 {
		return nil
	}
	return []byte(strings.Join(rapid.SliceOfN(levels, 1, 4).Draw(t, "key"), "/"))
}

func drawFilter(t *rapid.T) wire.Filter {
	parts := rapid.SliceOfN(rapid.OneOf(levels, rapid.Just("+")), 1, 4).Draw(t, "levels")
	f := wire.Filter{Kind: wire.FilterKind(rapid.IntRange(1, 3).Draw(t, "kind")), Value: strings.Join(parts, "/")}
	if f.Kind == wire.FilterPattern && rapid.Bool().Draw(t, "rest") {
		f.Value = strings.Join(append(parts[:len(parts)-1:len(parts)-1], "#"), "/")
	}
	return f
}

// Whoever joins and leaves, and whatever they select by: each queue gets exactly the records that one of its
// filters matches and that have not expired, once, in order.
func TestSelections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := fanout.NewHub(0, fanout.Position{})
		type reader struct {
			q       *fanout.Queue
			filters []wire.Filter
			want    []uint64
		}
		var readers []*reader
		var next uint64
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if len(readers) < 6 || rapid.Bool().Draw(t, "join") {
				r := &reader{filters: rapid.SliceOfN(rapid.Custom(drawFilter), 0, 3).Draw(t, "filters")}
				r.q = fanout.NewQueue(fanout.Limits{}, fanout.DropNew, fanout.NewSelection(r.filters))
				if !join(h, r.q, next) {
					t.Fatal("no join at the hub's position")
				}
				readers = append(readers, r)
			}
			if len(readers) > 3 && rapid.Bool().Draw(t, "leave") {
				h.Leave(readers[0].q)
				check(t, readers[0].q, readers[0].want)
				readers = readers[1:]
			}
			var envs []*fanout.Envelope
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				var recs []batch.Record
				for range rapid.IntRange(1, 4).Draw(t, "records") {
					recs = append(recs, batch.Record{Key: drawKey(t), Value: []byte("v"), Timestamp: 1})
				}
				for i, rec := range recs {
					for _, r := range readers {
						if len(r.filters) == 0 || slices.ContainsFunc(r.filters, func(f wire.Filter) bool { return f.Matches(rec.Key) }) {
							r.want = append(r.want, next+uint64(i))
						}
					}
				}
				envs = append(envs, envelope(next, recs...))
				next += uint64(len(recs))
			}
			h.Publish(envs, fanout.Position{Sequence: next, Offset: next}, 0)
			for _, r := range readers {
				check(t, r.q, r.want)
				r.want = nil
			}
		}
		for _, r := range readers {
			h.Leave(r.q)
		}
		if n := h.Subscribers(); n != 0 {
			t.Fatalf("%d subscribers are left", n)
		}
	})
}

// check takes everything from a queue and compares the offsets of the records in it.
func check(t *rapid.T, q *fanout.Queue, want []uint64) {
	t.Helper()
	var got []uint64
	var taken fanout.Taken
	for q.Take(&taken, 1<<20); len(taken.Deliveries) > 0; q.Take(&taken, 1<<20) {
		for _, d := range taken.Deliveries {
			got = append(got, recordsOf(t, d.Frame)...)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got the records %v, want %v", got, want)
	}
}

func recordsOf(t *rapid.T, frame []byte) (out []uint64) {
	t.Helper()
	h, err := wire.ParseHeader([wire.HeaderSize]byte(frame))
	if err != nil {
		t.Fatal(err)
	}
	body := frame[wire.HeaderSize:]
	var rec batch.Record
	if h.Type == wire.TypeDeliver {
		var d wire.Deliver
		if err := d.Parse(body); err != nil {
			t.Fatal(err)
		}
		for r := d.Batch.Records(); ; {
			ok, err := r.Next(&rec)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return out
			}
			out = append(out, r.Offset())
		}
	}
	var d wire.DeliverSlice
	if err := d.Parse(body); err != nil {
		t.Fatal(err)
	}
	s, err := batch.CheckSlice(d.Slices)
	if err != nil {
		t.Fatal(err)
	}
	for r := s.Records(); ; {
		ok, err := r.Next(&rec)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, r.Offset())
	}
}

// A loss of a filtered queue is stated with the range it lies in, since holes between its records are no loss.
func TestFilteredLoss(t *testing.T) {
	for _, c := range []struct {
		policy fanout.Policy
		taken  []uint64
		lost   []fanout.Range
	}{
		{fanout.DropNew, []uint64{0, 2, 100}, []fanout.Range{{}, {}, {From: 4, To: 99}}},
		{fanout.DropOld, []uint64{98, 100}, []fanout.Range{{From: 0, To: 97}, {}}},
	} {
		h := fanout.NewHub(0, fanout.Position{})
		q := fanout.NewQueue(fanout.Limits{Records: 2}, c.policy, fanout.NewSelection([]wire.Filter{{Kind: wire.FilterExact, Value: "even"}}))
		join(h, q, 0)
		for n := range uint64(100) {
			key := "odd"
			if n%2 == 0 {
				key = "even"
			}
			h.Publish([]*fanout.Envelope{envelope(n, batch.Record{Key: []byte(key), Timestamp: 1})}, fanout.Position{Sequence: n + 1, Offset: n + 1}, 0)
		}
		var t1, t2 fanout.Taken
		if c.policy == fanout.DropNew {
			q.Take(&t1, 1<<20)
		}
		h.Publish([]*fanout.Envelope{envelope(100, batch.Record{Key: []byte("even"), Timestamp: 1})}, fanout.Position{Sequence: 101, Offset: 101}, 0)
		q.Take(&t2, 1<<20)
		var taken []uint64
		var lost []fanout.Range
		for _, d := range append(t1.Deliveries, t2.Deliveries...) {
			taken, lost = append(taken, d.BaseOffset), append(lost, d.Lost)
		}
		if !slices.Equal(taken, c.taken) || !slices.Equal(lost, c.lost) {
			t.Errorf("policy %d: took %v, lost %v; want %v, %v", c.policy, taken, lost, c.taken, c.lost)
		}
	}
}

// Expired records go to nobody, whoever selects what.
func TestExpiredAreNotDelivered(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	all := fanout.NewQueue(fanout.Limits{}, fanout.DropNew, nil)
	some := fanout.NewQueue(fanout.Limits{}, fanout.DropNew, fanout.NewSelection([]wire.Filter{{Kind: wire.FilterPrefix, Value: "k"}}))
	join(h, all, 0)
	join(h, some, 0)
	e := envelope(0, // appended at 1 s
		batch.Record{Key: []byte("k1"), Timestamp: 1, TTL: 1_000_000_000},
		batch.Record{Key: []byte("k2"), Timestamp: 1, TTL: 3_000_000_000},
		batch.Record{Key: []byte("x"), Timestamp: 1})
	h.Publish([]*fanout.Envelope{e}, fanout.Position{Sequence: 1, Offset: 3}, 2_000_000)
	for q, want := range map[*fanout.Queue]string{all: "[1 2]", some: "[1]"} {
		var taken fanout.Taken
		q.Take(&taken, 1<<20)
		var got []uint64
		for _, d := range taken.Deliveries {
			h, _ := wire.ParseHeader([wire.HeaderSize]byte(d.Frame))
			if h.Type != wire.TypeDeliverSlice {
				t.Fatalf("a batch with an expired record went out whole")
			}
			var f wire.DeliverSlice
			if err := f.Parse(d.Frame[wire.HeaderSize:]); err != nil {
				t.Fatal(err)
			}
			s, err := batch.CheckSlice(f.Slices)
			if err != nil {
				t.Fatal(err)
			}
			var rec batch.Record
			for r := s.Records(); ; {
				if ok, err := r.Next(&rec); err != nil || !ok {
					break
				}
				got = append(got, r.Offset())
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("delivered %v, want %s", got, want)
		}
	}
}

// The cost of a record does not grow with the number of patterns: 10,000 distinct ones on one log.
func BenchmarkPatterns(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := fanout.NewHub(0, fanout.Position{})
			queues := make([]*fanout.Queue, n)
			for i := range queues {
				queues[i] = fanout.NewQueue(fanout.Limits{}, fanout.DropOld,
					fanout.NewSelection([]wire.Filter{{Kind: wire.FilterPattern, Value: fmt.Sprintf("device/%d/+", i)}}))
				join(h, queues[i], 0)
			}
			recs := make([]batch.Record, 100)
			for i := range recs {
				recs[i] = batch.Record{Key: fmt.Appendf(nil, "device/%d/t", i*97%10_000), Value: make([]byte, 128), Timestamp: 1}
			}
			envs := []*fanout.Envelope{envelope(0, recs...)}
			b.ReportAllocs()
			for b.Loop() {
				h.Publish(envs, fanout.Position{}, 0)
			}
		})
	}
}
