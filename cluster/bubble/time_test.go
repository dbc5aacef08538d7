// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/wire/control"
)

const day = 24 * time.Hour

func publish(t *testing.T, p *client.Publisher, rec client.Record, opts ...client.RecordOption) client.Ack {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ack, err := p.Publish(ctx, rec, opts...)
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return ack
}

// take reads n records.
func take(t *testing.T, s *client.Subscription, n int) []client.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []client.Record
	for rec, err := range s.Records(ctx) {
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(got), n, err)
		}
		if got = append(got, rec); len(got) == n {
			break
		}
	}
	return got
}

// WR-06: connections that are idle for hours live on, and so do their sessions, though a token lives for 15 minutes: the
// subscription is never interrupted, and what is published then arrives at once.
func TestIdleForHours(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		c := n.Connect()
		p := c.Publisher("s")
		publish(t, p, client.Record{Value: []byte("first")})
		var lost atomic.Int64
		s, err := c.Subscribe(t.Context(), "s", client.FromEarliest(), client.OnStatus(func(st client.Status) {
			if !st.Connected {
				lost.Add(1)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		take(t, s, 1)
		time.Sleep(2 * time.Hour)
		began := time.Now()
		publish(t, p, client.Record{Value: []byte("second")})
		take(t, s, 1)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("after hours of silence a record took %v", took)
		}
		if n := lost.Load(); n > 0 {
			t.Errorf("the subscription was interrupted %d times", n)
		}
	})
}

// S7: in an outage longer than its delivery timeout a record that was under way ends as unknown, one that was never sent
// as refused, one for which there is no room as buffer_full; the subscription waits the outage out.
func TestLongOutage(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		tr := newTraffic(t, "s")
		c := n.Connect(client.WithBufferBytes(64 << 10))
		tr.read(n.Connect(), "live", 0)
		p := c.Publisher("s", client.FailWhenFull())
		tr.publish(p, "before", 5, time.Millisecond)
		tr.settle()

		b.Network.Cut(NodeAddress().Addr(), netip.Addr{}) // what is sent arrives, and no answer comes back
		tr.publish(p, "under way", 3, time.Millisecond)
		time.Sleep(time.Second)
		b.Network.CutOff(NodeAddress().Addr())
		time.Sleep(time.Minute) // by now the connection has been given up
		tr.publish(p, "never sent", 3, time.Millisecond)
		time.Sleep(time.Second)
		full := 0
		for i := range 100 {
			rec := client.Record{Value: fmt.Appendf(make([]byte, 0, 2048), "%2000d", i)}
			if _, err := p.PublishAsync(t.Context(), rec).Wait(canceled()); errors.Is(err, client.ErrBufferFull) {
				full++
			}
		}
		if full < 60 || full == 100 {
			t.Errorf("%d of 100 records of 2 KB found no room in 64 KiB", full)
		}
		began := time.Now()
		got := tr.settle()
		if took := time.Since(began); took > client.DefaultDeliveryTimeout {
			t.Errorf("records were given up after %v", took)
		}
		if got[history.Acked] != 5 || got[history.Unknown] != 3 || got[history.Refused] != 3 {
			t.Errorf("publishes ended as %v, want 5 acknowledged, 3 unknown, 3 refused", got)
		}
		time.Sleep(time.Hour)
		b.Network.Heal()
		again := n.Connect().Publisher("s")
		tr.publish(again, "after", 5, time.Millisecond)
		tr.settle()
		tr.judge(n.Connect())
	})
}

// canceled is a context that is over: who waits under it takes what is there.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// RT-01: with a record every half hour for six days, what is kept is never younger than asked for nor much older; a
// reader that was away for longer is told what it missed.
func TestRetentionByAgeOverDays(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", MaxAge: new(control.Duration(day)), SegmentAge: new(control.Duration(time.Hour))})
		away := n.Connect()
		s, err := away.Subscribe(t.Context(), "s", client.FromEarliest(), client.Durable("away"), client.ManualCommit())
		if err != nil {
			t.Fatal(err)
		}
		when := map[uint64]time.Time{}
		for i := range 6 * 24 * 2 {
			c := n.Connect()
			a := publish(t, c.Publisher("s"), client.Record{Value: fmt.Append(nil, i)})
			when[a.Offset] = time.Now()
			if i == 10 {
				take(t, s, 5)
				if err := s.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				away.Close()
			}
			o, err := c.Offsets(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			earliest := o[0].Earliest
			if age := time.Since(when[earliest]); age > day+2*time.Hour {
				t.Fatalf("offset %d is kept after %v", earliest, age)
			}
			if earliest > 0 && time.Since(when[earliest-1]) < day {
				t.Fatalf("offset %d was removed after %v", earliest-1, time.Since(when[earliest-1]))
			}
			c.Close()
			if i == 100 {
				n.PowerCut(b.Rand("cut"))
				n.Boot()
			}
			time.Sleep(30 * time.Minute)
		}
		c := n.Connect()
		o, err := c.Offsets(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		back, err := c.Subscribe(t.Context(), "s", client.Durable("away"))
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		first := take(t, back, 1)[0]
		want := client.Gap{From: 5, To: o[0].Earliest, Reason: client.GapRetention}
		if !back.Resumed() || first.Offset != want.To || first.Gap == nil || *first.Gap != want {
			t.Errorf("back after days: resumed %v, offset %d, gap %+v; want %+v", back.Resumed(), first.Offset, first.Gap, want)
		}
	})
}

// A last record is published when the client has not been heard of for the connection's idle time, once, and not before;
// after a restart of the node the client has its grace.
func TestLastRecords(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		watcher, err := n.Connect().Subscribe(t.Context(), "s", client.FromEarliest())
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close()
		leave := func(who string, grace time.Duration, opts ...client.LastOption) (host netip.Addr) {
			t.Helper()
			host = b.Network.NewHost()
			if _, err := n.ConnectFrom(host).LastRecord(t.Context(), "s", client.Record{Value: []byte(who)}, grace, opts...); err != nil {
				t.Fatal(err)
			}
			return host
		}
		silent := func(d time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			for rec, err := range watcher.Records(ctx) {
				if err == nil {
					t.Fatalf("record %s though nobody is lost", rec.Value)
				}
			}
		}
		at := leave("crashed", time.Minute)
		silent(time.Hour)
		b.Network.Cut(at, netip.Addr{})
		began := time.Now()
		if got := take(t, watcher, 1)[0]; string(got.Value) != "crashed" {
			t.Fatalf("got %s", got.Value)
		}
		if took := time.Since(began); took < 6*time.Second || took > 15*time.Second {
			t.Errorf("a silent client counted as lost after %v, its idle time is 10 s", took)
		}
		silent(time.Hour) // its link tries again and again, and nothing comes of it

		returned := make(chan struct{}, 10)
		at = leave("restarted", time.Minute, client.OnReturn(func() { returned <- struct{}{} }))
		n.PowerCut(nil)
		time.Sleep(30 * time.Second)
		n.Boot()
		<-returned
		silent(time.Hour) // it was back within its grace

		n.PowerCut(nil)
		b.Network.Cut(at, netip.Addr{}) // it will not come back
		n.Boot()
		began = time.Now()
		if got := take(t, watcher, 1)[0]; string(got.Value) != "restarted" {
			t.Fatalf("got %s", got.Value)
		}
		if took := time.Since(began); took < 59*time.Second || took > 70*time.Second {
			t.Errorf("a client that did not come back counted as lost after %v, its grace is a minute", took)
		}
	})
}
