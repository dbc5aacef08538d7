// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"fmt"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/wire/control"
)

// What a shard remembers of its clients it remembers for as long as it says, over restarts and power cuts, and no longer
// than it must.

// A cursor that nobody uses is forgotten after 30 days of the stream's time, and one that is used in between is not.
func TestCursorsAreForgotten(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		use := func(name string) (resumed bool) {
			t.Helper()
			c := n.Connect()
			defer c.Close()
			s, err := c.Subscribe(t.Context(), "s", client.FromEarliest(), client.Durable(name))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			return s.Resumed()
		}
		pass := func(days int) {
			t.Helper()
			for range days { // the stream's time is that of its appends
				time.Sleep(day)
				c := n.Connect()
				publish(t, c.Publisher("s"), client.Record{Value: []byte("v")})
				c.Close()
			}
			n.PowerCut(b.Rand(fmt.Sprint("cut", days)))
			n.Boot()
		}
		use("used")
		use("left")
		pass(29)
		if !use("used") {
			t.Error("a cursor is forgotten before its time")
		}
		pass(29)
		if !use("used") {
			t.Error("a cursor that is used is forgotten")
		}
		if use("left") {
			t.Error("a cursor is kept for 58 days without use")
		}
	})
}

// ID-05: a dedup id counts for its window from its first record on, over a power cut, and not longer.
func TestDedupWindowOverTime(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", DedupWindow: new(control.Duration(time.Hour))})
		again := func() client.Ack {
			t.Helper()
			c := n.Connect()
			defer c.Close()
			return publish(t, c.Publisher("s"), client.Record{DedupID: "order-7", Value: []byte("v")})
		}
		first := again()
		for i, step := range []time.Duration{time.Minute, 40 * time.Minute, 18 * time.Minute} {
			time.Sleep(step)
			n.PowerCut(b.Rand(fmt.Sprint("cut", i)))
			n.Boot()
			if a := again(); !a.Duplicate || a.Offset != first.Offset {
				t.Errorf("within the window: %+v, the first is at %d", a, first.Offset)
			}
		}
		time.Sleep(time.Minute + time.Second)
		if a := again(); a.Duplicate {
			t.Errorf("behind the window: %+v", a)
		}
	})
}

// ID-04: a publisher that is idle for a month, over power cuts, goes on by itself: nothing is refused and nothing stored
// twice.
func TestProducersThatAreIdle(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", SegmentBytes: new(int64(4 << 10)), MaxAge: new(control.Duration(day))})
		p := func(c *client.Client) *client.Publisher { return c.Publisher("s", client.ProducerName("monthly")) }
		c := n.Connect()
		publish(t, p(c), client.Record{Value: []byte("1")}, client.Sequence(1))
		c.Close()
		for i := range 30 {
			n.PowerCut(b.Rand(fmt.Sprint("cut", i)))
			n.Boot()
			c := n.Connect()
			for range 3 {
				publish(t, c.Publisher("s"), client.Record{Value: make([]byte, 1000)})
			}
			c.Close()
			time.Sleep(day)
		}
		c = n.Connect()
		last, err := p(c).LastSequence(t.Context(), 0)
		if err != nil || last > 1 {
			t.Fatalf("the last sequence is %d, %v", last, err)
		}
		if last == 1 {
			if a := publish(t, p(c), client.Record{Value: []byte("1")}, client.Sequence(1)); !a.Duplicate {
				t.Errorf("the shard knows the sequence and stores it again: %+v", a)
			}
		}
		if a := publish(t, p(c), client.Record{Value: []byte("2")}, client.Sequence(2)); a.Duplicate {
			t.Errorf("a new record is taken for an old one: %+v", a)
		}
	})
}

// The node's certificate is renewed before its end, without a restart: who connects after years is still sure of whom it
// talks to.
func TestCertificatesOverYears(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		for range 8 {
			time.Sleep(90 * day)
			c := n.Connect()
			publish(t, c.Publisher("s"), client.Record{Value: []byte("v")})
			c.Close()
		}
	})
}
