// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/wire/control"
)

// S1, S3, S5: over a network that loses, delays, duplicates and reorders packets, and is cut in both directions and in
// one, publishers and readers go on by themselves: everything is acknowledged, once, in order, and every reader gets it
// all.
func TestBadNetwork(t *testing.T) {
	seeds(t, 3, func(t *testing.T, b *Bubble) {
		n := b.Start()
		n.Create(control.StreamSpec{Name: "s", Shards: new(2)})
		tr := newTraffic(t, "s")
		tr.read(n.Connect(), "live", 0)
		tr.read(n.Connect(), "durable", 0, client.Durable("d"))
		for i := range 3 {
			tr.publish(n.Connect().Publisher("s"), fmt.Sprintf("p%d", i), 150, 400*time.Millisecond)
		}
		rng := b.Rand("scenario")
		for range 10 {
			b.Network.SetWeather(Weather{
				Delay: time.Duration(rng.IntN(80)) * time.Millisecond, Jitter: time.Duration(rng.IntN(60)) * time.Millisecond,
				Loss: rng.Float64() / 5, Duplicate: rng.Float64() / 5,
			})
			time.Sleep(time.Duration(1+rng.IntN(8)) * time.Second)
			switch rng.IntN(3) {
			case 0:
				b.Network.CutOff(NodeAddress().Addr())
			case 1:
				b.Network.Cut(NodeAddress().Addr(), netip.Addr{})
			case 2:
				b.Network.Cut(netip.Addr{}, NodeAddress().Addr())
			}
			time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
			b.Network.Heal()
		}
		b.Network.SetWeather(Weather{})
		got := tr.settle()
		if got[history.Acked] != 450 {
			t.Errorf("publishes ended as %v, want each acknowledged", got)
		}
		tr.judge(n.Connect())
	})
}
