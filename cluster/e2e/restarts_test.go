// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// Restarts, orderly or not, leave no segments and no descriptors behind: a shard has as many segments after them as
// before, and the node has open what its shards need (ST-14).
func TestRestartsPileNothingUp(t *testing.T) {
	t.Parallel()
	const shards, restarts = 100, 5
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "many", Shards: new(shards)})
	pub := p.Connect().Publisher("many")
	for i := range 3 * shards {
		pub.PublishAsync(within(t), record(fmt.Sprintf("key-%d", i), "first"))
	}
	if err := pub.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	before := segments(t, p, stream)
	sizes := bytesOf(t, before)
	for i := range restarts {
		if i%2 == 0 {
			p.Kill()
		} else if exit := p.Stop(); exit.Code != 0 {
			t.Fatalf("SIGTERM: %v\n%s", exit, exit.Stderr)
		}
		p.Start()
		publish(t, pub, "the same key", fmt.Sprintf("after restart %d", i))

		// One for the newest segment of each shard, a bounded number of old ones, and the process's own.
		open := p.Descriptors()
		if len(open) > shards+64 {
			t.Errorf("after restart %d %d descriptors are open for %d shards:\n%s", i, len(open), shards, strings.Join(open, "\n"))
		}
		for _, name := range open {
			if strings.HasSuffix(name, "(deleted)") {
				t.Errorf("after restart %d a removed file is still open: %s", i, name)
			}
		}
	}
	after := segments(t, p, stream)
	for shard, files := range after {
		if had := max(1, len(before[shard])); len(files) > had {
			t.Errorf("shard %s had %d segments and has %d after %d restarts", shard, had, len(files), restarts)
		}
	}
	// A restart writes that it opened the shard, once per shard, and not its state over again.
	if grown := bytesOf(t, after) - sizes; grown > restarts*(shards+1)*1024 {
		t.Errorf("%d restarts wrote %d bytes into %d shards", restarts, grown, shards)
	}
	if got := len(readAll(t, p.Connect(), "many")); got != 3*shards+restarts {
		t.Errorf("%d records are there, want %d", got, 3*shards+restarts)
	}
}

// Ended at any moment of a recovery, by SIGTERM or by SIGKILL, a node loses nothing and leaves nothing: it exits 0 when it
// was asked to, and the next start finds every record in files that did not grow by more than a segment (ST-09).
func TestEndedWhileItRecovers(t *testing.T) {
	t.Parallel()
	const shards, segmentBytes = 50, 64 << 10
	rounds := 8
	if !testing.Short() {
		rounds = 50
	}
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "recovers", Shards: new(shards), SegmentBytes: new(int64(segmentBytes))})
	pub := p.Connect().Publisher("recovers")
	want := map[string]bool{}
	for i := range 20 * shards {
		value := fmt.Sprintf("%d %s", i, strings.Repeat("x", 2000))
		want[value] = true
		pub.PublishAsync(within(t), record(fmt.Sprintf("key-%d", i%(4*shards)), value))
	}
	if err := pub.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	before := bytesOf(t, segments(t, p, stream))
	rng := rand.New(rand.NewPCG(4, 4))
	for round := range rounds {
		p.Spawn()
		eventually(t, "the node to have come as far as its HTTP port", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.HTTP(), "http://"))
			if err != nil {
				return false
			}
			_ = conn.Close()
			return true
		})
		moment := time.NewTimer(time.Duration(rng.Int64N(int64(100 * time.Millisecond)))) // a fault's time, not a wait
		select {
		case <-moment.C:
		case <-p.Ready():
		}
		moment.Stop()
		if round%2 == 0 {
			p.Kill()
		} else if exit := p.Stop(); exit.Code != 0 {
			t.Errorf("round %d: SIGTERM while it recovers: %v\n%s", round, exit, exit.Stderr)
		}
	}
	p.Start()
	if grown := bytesOf(t, segments(t, p, stream)) - before; grown > shards*segmentBytes {
		t.Errorf("%d recoveries wrote %d bytes into %d shards", rounds, grown, shards)
	}
	for _, rec := range readAll(t, p.Connect(), "recovers") {
		if !want[string(rec.Value)] {
			t.Errorf("%.20q is there twice, or was never published", rec.Value)
		}
		delete(want, string(rec.Value))
	}
	if len(want) > 0 {
		t.Errorf("%d acknowledged records are not there", len(want))
	}
}

func bytesOf(t *testing.T, byShard map[string][]string) (total int64) {
	t.Helper()
	for _, files := range byShard {
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
	}
	return total
}
