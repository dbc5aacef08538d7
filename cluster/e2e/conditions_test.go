// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// swap is one attempt to move a counter on, and what its author was told.
type swap struct {
	value string // begins with the version that its author had seen
	ack   client.Ack
	err   error
}

// CA-07 under kills: the records of a key that many compare and set are one chain, in which each follows the version that
// its author had seen; who was acknowledged is in it, who was refused is not, and no retry counts twice.
func TestCompareAndSetUnderKills(t *testing.T) {
	t.Parallel()
	kills := 3
	if !testing.Short() {
		kills = 10
	}
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "s", SegmentBytes: new(int64(killSegmentBytes))})
	const writers = 12
	var (
		wg     sync.WaitGroup
		stop   atomic.Bool
		stored atomic.Int64
		swaps  [writers][]swap
	)
	ctx := within(t)
	for w := range writers {
		pub := p.Connect().Publisher("s")
		wg.Go(func() {
			var version uint64
			for i := 0; !stop.Load(); i++ {
				s := swap{value: fmt.Sprintf("%d %d/%d", version, w, i)}
				s.ack, s.err = pub.Publish(ctx, record("counter", s.value), client.IfVersion(version))
				if have, _, ok := client.CurrentVersion(s.err); ok {
					version = have
				}
				if s.err == nil {
					version = s.ack.Version()
					stored.Add(1)
				}
				swaps[w] = append(swaps[w], s)
			}
		})
	}
	for range kills {
		goal := stored.Load() + 20
		eventually(t, "the counter to go on", func() bool { return stored.Load() >= goal })
		p.Kill()
		p.Start()
	}
	goal := stored.Load() + 20
	eventually(t, "the counter to go on after the last start", func() bool { return stored.Load() >= goal })
	stop.Store(true)
	wg.Wait()
	chain := map[string]uint64{}
	var version uint64
	for _, r := range readAll(t, p.Connect(), "s") {
		var seen uint64
		if _, err := fmt.Sscan(string(r.Value), &seen); err != nil {
			t.Fatal(err)
		}
		if seen != version {
			t.Fatalf("the record at %d follows version %d, its author had seen %d", r.Offset, version, seen)
		}
		version = r.Version()
		chain[string(r.Value)] = r.Offset
	}
	for _, all := range swaps {
		for _, s := range all {
			at, found := chain[s.value]
			switch e := client.AsError(s.err); {
			case e == nil && (!found || at != s.ack.Offset):
				t.Fatalf("%q was acknowledged at %d; in the chain %v, at %d", s.value, s.ack.Offset, found, at)
			case e != nil && e.Class != code.ClassUnknown && found:
				t.Fatalf("%q ended with %v and is in the chain", s.value, s.err)
			}
		}
	}
}
