// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

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
