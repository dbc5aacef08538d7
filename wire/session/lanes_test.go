// SPDX-License-Identifier: Apache-2.0

package session

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// TestTenThousandLanes opens ten thousand lanes one after the other on a connection that may have
// sixteen: a tenth is given up by the client at a random moment, a tenth is refused by the server before
// it has read the body. A lane that leaves either direction open on either side would stop the test
// after sixteen of them.
func TestTenThousandLanes(t *testing.T) { both(t, testTenThousandLanes) }

func testTenThousandLanes(t *testing.T, tr transport) {
	lanes, window := 10_000, 500
	if tr.name == overTLS.name && testing.Short() { // each is a handshake
		lanes, window = 1000, 100
	}
	var server, client Stats
	cfg := Config{MaxLanes: 16}
	serve := func(_ Conn, l *Lane) {
		defer func() { _ = l.Close() }()
		h, err := l.ReadHeader()
		if err != nil {
			return
		}
		if h.Corr%10 == 1 {
			_ = l.Refuse(h, code.New(code.NotLeader, "not here"))
			return
		}
		body, err := l.AppendBody(nil)
		if err == nil {
			_ = l.Send(wire.AppendHeader(nil, h), body)
		}
	}
	scfg := cfg
	scfg.Stats, cfg.Stats = &server, &client
	b := tr.listen(t, scfg, serve)
	c := b.connect(cfg)
	rng := rand.New(rand.NewPCG(1, 2))
	var took []time.Duration // by window
	var before, after runtime.MemStats
	start := time.Now()
	for i := range lanes {
		oneLane(t, c, uint64(i), rng)
		if (i+1)%window > 0 {
			continue
		}
		took = append(took, time.Since(start))
		if len(took) == 1 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		start = time.Now()
	}
	eventually(t, "open lanes back at zero", func() bool { return server.OpenLanes.Load()+client.OpenLanes.Load() == 0 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The best of several: what others do on the machine slows down some windows, what piles up slows down all.
	half := len(took) / 2
	first, last := slices.Min(took[:half]), slices.Min(took[half:])
	t.Logf("%d lanes took %v, later %v; heap %d KiB, then %d KiB", window, first, last, before.HeapAlloc>>10, after.HeapAlloc>>10)
	if last > 5*first {
		t.Errorf("slows down: %v for %d lanes, and %v later", first, window, last)
	}
	if after.HeapAlloc > before.HeapAlloc+4<<20 {
		t.Errorf("memory grows: %d KiB, then %d KiB", before.HeapAlloc>>10, after.HeapAlloc>>10)
	}
}

func oneLane(t *testing.T, c Conn, i uint64, rng *rand.Rand) {
	t.Helper()
	l := open(t, c)
	switch i % 10 {
	default:
		if h, _, err := ask(l, i, make([]byte, 200)); err != nil || h.Corr != i {
			t.Fatalf("request %d: %+v, %v", i, h, err)
		}
	case 1: // the server answers without having read the body, and closes
		h, _, err := ask(l, i, make([]byte, 20_000))
		if err != nil || h.Type != wire.TypeError {
			t.Fatalf("request %d: %+v, %v", i, h, err)
		}
	case 2: // the client gives up: before, during or after
		stage := rng.IntN(4)
		if stage > 0 {
			_ = l.SendFrame(i, &wire.Ping{})
		}
		if stage > 1 {
			for range rng.IntN(2000) {
				runtime.Gosched()
			}
		}
		if stage > 2 {
			_, _ = l.ReadHeader()
		}
		l.Reset(code.Cancelled)
	}
	_ = l.Close()
}

// TestLanesCountUntilOurSideCloses: a peer that opens and abandons lanes faster than they are served is
// held to MaxLanes of them, so the goroutines that serve it are bounded.
func TestLanesCountUntilOurSideCloses(t *testing.T) { both(t, testLanesCountUntilOurSideCloses) }

func testLanesCountUntilOurSideCloses(t *testing.T, tr transport) {
	release := make(chan struct{})
	var server Stats
	b := tr.listen(t, Config{MaxLanes: 4, Stats: &server}, func(_ Conn, l *Lane) {
		<-release
		_ = l.Close()
	})
	c := b.connect(Config{})
	for range 4 {
		l := open(t, c)
		_ = l.SendFrame(1, &wire.Ping{})
		l.Reset(code.Cancelled)
	}
	opened := make(chan *Lane)
	go func() {
		l, err := c.OpenLane(t.Context())
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	eventually(t, "four lanes served", func() bool { return server.OpenLanes.Load() == 4 })
	select {
	case <-opened:
		t.Error("a fifth lane opened while four are being served")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	_ = (<-opened).Close()
}
