// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire/control"
)

// S1, S2, S3: whatever ends the node, and however often, what was acknowledged is there afterwards, once and in order,
// and everybody goes on by themselves, over QUIC with the even seeds and over TLS with the odd ones.
func TestCrashes(t *testing.T) {
	seeds(t, 4, func(t *testing.T, b *Bubble) {
		n := b.Start()
		if b.Seed%2 == 1 {
			n.OverTLS()
		}
		n.Create(control.StreamSpec{Name: "s", Shards: new(2), SegmentBytes: new(int64(8 << 10))})
		b.Network.SetWeather(Weather{Delay: 3 * time.Millisecond, Jitter: 4 * time.Millisecond, Loss: 0.01})
		tr := newTraffic(t, "s")
		tr.read(n.Connect(), "live", 0)
		tr.read(n.Connect(), "durable", 0, client.Durable("d"))
		tr.readPrefix(n.Connect(), "filtered", "p1-")
		for i := range 4 {
			tr.publish(n.Connect().Publisher("s"), fmt.Sprintf("p%d", i), 400, 37*time.Millisecond)
		}
		rng := b.Rand("scenario")
		for range 6 {
			time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
			switch rng.IntN(4) {
			case 0:
				n.Kill()
			case 1:
				n.PowerCut(nil)
			default:
				n.PowerCut(rng)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			n.Boot()
		}
		if got := tr.settle(); got[history.Acked] != 1600 {
			t.Errorf("publishes ended as %v, want each acknowledged", got)
		}
		tr.judge(n.Connect())
	})
}

func inShards(name string) bool { return strings.Contains(name, "/shards/") }

// ST-11: a flush that fails takes its shard back to what is known to be flushed; publishers repeat what was lost, and a
// power cut later finds all that was acknowledged.
func TestFailingFlushes(t *testing.T) {
	seeds(t, 3, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", SegmentBytes: new(int64(16 << 10))})
		tr := newTraffic(t, "s")
		tr.read(n.Connect(), "live", 0)
		for i := range 3 {
			tr.publish(n.Connect().Publisher("s"), fmt.Sprintf("p%d", i), 300, 50*time.Millisecond)
		}
		rng := b.Rand("scenario")
		failed := 0
		for range 3 {
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
			bad := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: inShards, Max: 1 + rng.IntN(3), Err: errors.New("I/O error")}
			n.Faults().Add(bad)
			time.Sleep(2 * time.Second)
			failed += bad.Seen()
		}
		if failed == 0 {
			t.Error("no flush has failed")
		}
		n.PowerCut(rng)
		n.Boot()
		if got := tr.settle(); got[history.Acked] != 900 {
			t.Errorf("publishes ended as %v, want each acknowledged", got)
		}
		tr.judge(n.Connect())
	})
}

// S4: while a flush takes its time nobody sees what it is about, whether he reads history or waits at the live end: a
// power cut in the middle takes it away.
func TestNothingIsSeenBeforeItIsFlushed(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s"})
		tr := newTraffic(t, "s")
		p := n.Connect().Publisher("s")
		tr.read(n.Connect(), "live", 0)
		tr.publish(p, "before", 10, time.Millisecond)
		tr.settle()
		n.Faults().Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: inShards, Hook: func(faultfs.Call) { time.Sleep(time.Minute) }})
		tr.publish(p, "during", 10, time.Millisecond)
		time.Sleep(time.Second)
		tr.read(n.Connect(), "late", 0)
		time.Sleep(10 * time.Second)
		for _, r := range tr.readers {
			if got := r.matching(""); got != 10 {
				t.Errorf("reader %s has %d records, and 10 are flushed", r.name, got)
			}
		}
		n.PowerCut(nil)
		n.Boot()
		if got := tr.settle(); got[history.Acked] != 20 {
			t.Errorf("publishes ended as %v, want each acknowledged", got)
		}
		tr.judge(n.Connect())
	})
}

// A disk that takes seconds for each flush of one stream makes its acknowledgements late and nothing else: no timeout, no
// loss, and the stream beside it is as fast as ever.
func TestSlowDisk(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "slow"})
		n.Create(control.StreamSpec{Name: "quick"})
		info, err := n.Connect().Info(t.Context(), "slow")
		if err != nil {
			t.Fatal(err)
		}
		rng := b.Rand("scenario")
		var longest time.Duration
		n.Faults().Add(&faultfs.Rule{
			Ops:  []faultfs.Op{faultfs.Sync},
			Path: func(name string) bool { return strings.Contains(name, info.ID.String()) },
			Hook: func(faultfs.Call) { // one flush of the stream at a time
				d := time.Duration(rng.Int64N(int64(5 * time.Second)))
				longest = max(longest, d)
				time.Sleep(d)
			},
		})
		slow := newTraffic(t, "slow")
		slow.read(n.Connect(), "live", 0)
		slow.publish(n.Connect().Publisher("slow"), "p", 500, 100*time.Millisecond)
		p := n.Connect().Publisher("quick")
		for i := range 500 {
			began := time.Now()
			if _, err := p.Publish(t.Context(), client.Record{Value: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); i > 0 && took > 50*time.Millisecond {
				t.Fatalf("record %d beside a slow disk took %v", i, took)
			}
			time.Sleep(90 * time.Millisecond)
		}
		if got := slow.settle(); got[history.Acked] != 500 || longest < time.Second {
			t.Errorf("publishes ended as %v with flushes of up to %v", got, longest)
		}
		slow.judge(n.Connect())
	})
}

// A disk that is full refuses records, for as long as it is; reading goes on, and so does publishing once there is room.
func TestFullDisk(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", SegmentBytes: new(int64(64 << 10))})
		tr := newTraffic(t, "s")
		c := n.Connect()
		tr.read(c, "live", 0)
		tr.publish(c.Publisher("s"), "before", 20, time.Millisecond)
		tr.settle()
		n.Disk().SetCapacity(4 << 10)
		eventually(t, "the disk to count as full", func() bool {
			short := c.Publisher("s", client.WithDeliveryTimeout(time.Second))
			id := tr.history.Begin(history.Attempt{Client: "probe", Op: "publish", Digest: history.Sum(nil, []byte(time.Now().String()))})
			ack, err := short.Publish(t.Context(), client.Record{Value: []byte(time.Now().String())})
			tr.end(id, ack, err)
			return errors.Is(err, client.ErrStorageFull)
		})
		tr.publish(c.Publisher("s"), "waits", 50, 100*time.Millisecond) // until there is room, within two minutes
		tr.publish(c.Publisher("s", client.WithDeliveryTimeout(20*time.Second)), "gives up", 10, time.Millisecond)
		time.Sleep(time.Minute)
		n.Disk().SetCapacity(0)
		got := tr.settle()
		if got[history.Acked] < 70 || got[history.Refused] < 10 || got[history.Unknown] > 0 {
			t.Errorf("publishes ended as %v, want what waited acknowledged and what gave up refused", got)
		}
		tr.judge(c)
	})
}
