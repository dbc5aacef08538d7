// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

func TestMain(m *testing.M) {
	if os.Getenv(subscriberVariable) != "" {
		subscriberProcess()
		return
	}
	if os.Getenv(churnVariable) != "" {
		churnProcess()
	}
	if os.Getenv(deviceVariable) != "" {
		deviceProcess()
		return
	}
	process.Main(m)
}

// patience is how long a test waits for what must come; no test passes by it.
const patience = await.Patience

func within(t *testing.T) context.Context {
	t.Helper()
	return await.Within(t)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	await.True(t, what, cond)
}

// create makes a stream.
func create(t *testing.T, p *process.Process, spec control.StreamSpec) control.Stream {
	t.Helper()
	cc := p.Context()
	s, err := p.Control().CreateStream(within(t), cc.Tenant, cc.Namespace, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publish stores one record, which must succeed.
func publish(t *testing.T, p *client.Publisher, key, value string) client.Ack {
	t.Helper()
	ack, err := p.Publish(within(t), record(key, value))
	if err != nil {
		t.Fatalf("publish %q: %v", key, err)
	}
	if !ack.Flushed || !ack.Committed {
		t.Fatalf("publish %q: acknowledged with %+v, want it flushed and committed", key, ack)
	}
	return ack
}

// readAll reads a stream up to its end as it is now, in the order in which it comes.
func readAll(t *testing.T, c *client.Client, stream string) []client.Record {
	t.Helper()
	s, err := c.Subscribe(within(t), stream, client.FromEarliest(), client.UntilMark())
	if err != nil {
		t.Fatalf("read %s: %v", stream, err)
	}
	defer s.Close()
	var all []client.Record
	for rec, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatalf("read %s: after %d records: %v", stream, len(all), err)
		}
		all = append(all, rec)
	}
	return all
}

// values are the values of records, sorted as they lie in their shards.
func values(recs []client.Record) []string {
	var out []string
	for _, r := range recs {
		out = append(out, string(r.Value))
	}
	return out
}

// segments lists the segment files of a stream's shards by shard directory.
func segments(t *testing.T, p *process.Process, stream control.Stream) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.Data(), "shards", stream.ID, "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	byShard := map[string][]string{}
	for _, f := range files {
		shard := filepath.Base(filepath.Dir(f))
		byShard[shard] = append(byShard[shard], f)
	}
	return byShard
}

// treeSum says what lies below a data directory: every name, and the sum of every file. Two sums that are equal mean that
// nothing was made, removed or written in between. The lock's file is no data: it names who holds or held the directory.
func treeSum(t *testing.T, dir string) string {
	t.Helper()
	var sum strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			fmt.Fprintf(&sum, "%s/\n", rel)
			return nil
		}
		if rel == "LOCK" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sum, "%s %x\n", rel, sha256.Sum256(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum.String()
}

func record(key, value string) client.Record {
	rec := client.Record{Value: []byte(value)}
	if key != "" {
		rec.Key = []byte(key)
	}
	return rec
}
