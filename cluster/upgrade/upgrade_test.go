// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/admin"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire/control"
)

// fixtures are data directories as each release left one. The README there says how they are made.
const fixtures = "../testdata/releases"

var update = flag.String("update", "", "make the fixture of this release, such as v0.3.0, with the node of this tree: at a release only")

// held is what the fixture held when it was made.
type held struct {
	Commit  string              `json:"commit"`  // that the node was built from
	Records map[string][]string `json:"records"` // by "stream/shard": key and value of each record, in order
	Cursor  int                 `json:"cursor"`  // records that the durable subscription had consumed
	Caches  []control.Cache     `json:"caches,omitempty"`
	Queue   *heldQueue          `json:"queue,omitempty"`
}

func within(t *testing.T) context.Context {
	t.Helper()
	return await.Within(t)
}

// TestReleases opens a copy of what each release left and finds all of it: records at their offsets, the durable cursor
// where it was, dedup ids and versions as they were known, and room to go on.
func TestReleases(t *testing.T) {
	if *update != "" {
		makeFixture(t, filepath.Join(fixtures, *update))
	}
	all, err := filepath.Glob(filepath.Join(fixtures, "v*"))
	if err != nil || len(all) == 0 {
		t.Fatal("there are no fixtures", err)
	}
	for _, fixture := range all {
		t.Run(filepath.Base(fixture), func(t *testing.T) { opens(t, fixture) })
	}
}

func opens(t *testing.T, fixture string) {
	t.Helper()
	var want held
	b, err := os.ReadFile(filepath.Join(fixture, "held.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(fixture, "data"))); err != nil {
		t.Fatal(err)
	}
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Dir = dir }))
	c := n.Connect()
	got := read(t, c)
	if len(got) != len(want.Records) {
		t.Errorf("%d shards hold records, %d did", len(got), len(want.Records))
	}
	for shard, recs := range want.Records {
		if strings.Join(got[shard], "\n") != strings.Join(recs, "\n") {
			t.Errorf("shard %s holds %d records, held %d, or others", shard, len(got[shard]), len(recs))
		}
	}
	ctx := within(t)
	s, err := c.Subscribe(ctx, "orders", client.Durable("device"), client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	left := 0
	for _, recs := range got {
		left += len(recs)
	}
	left -= len(got["versions/0"]) + want.Cursor
	for range left {
		for _, err := range s.Records(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if !s.Resumed() {
		t.Error("the durable subscription is new")
	}
	settings(t, n, &want)
	queue(ctx, t, c, want.Queue)
	p := c.Publisher("versions")
	if _, err := p.Publish(ctx, client.Record{Key: []byte("k"), Value: []byte("late")}, client.IfVersion(1)); err == nil {
		t.Error("a version that was overwritten holds")
	}
	ack, err := p.Publish(ctx, client.Record{Key: []byte("k"), Value: []byte("new")}, client.IfVersion(uint64(len(got["versions/0"]))))
	if err != nil || ack.Offset != uint64(len(got["versions/0"])) {
		t.Errorf("the next record: %+v, %v", ack, err)
	}
}

// settings demands that the catalog means what it did: a stream of before there were caches keeps all, and each cache is
// the very one.
func settings(t *testing.T, n *margaytest.Node, want *held) {
	t.Helper()
	a, err := admin.FromContext(n.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	streams := 0
	for s, err := range a.Streams(within(t)) {
		if err != nil || s.Keep != control.KeepAll {
			t.Errorf("stream %+v: %v", s, err)
		}
		streams++
	}
	if streams != 2 {
		t.Errorf("%d streams, want 2", streams)
	}
	if got := caches(t, a); !slices.Equal(got, want.Caches) {
		t.Errorf("caches %+v, held %+v", got, want.Caches)
	}
}

func caches(t *testing.T, a *admin.Client) []control.Cache {
	t.Helper()
	var all []control.Cache
	for k, err := range a.Caches(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	return all
}

// read reads every stream whole.
func read(t *testing.T, c *client.Client) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, stream := range []string{"orders", "versions"} {
		s, err := c.Subscribe(within(t), stream, client.FromEarliest(), client.UntilMark())
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range s.Records(within(t)) {
			if err != nil {
				t.Fatal(err)
			}
			shard := fmt.Sprintf("%s/%d", stream, r.Shard)
			if r.Offset != uint64(len(out[shard])) {
				t.Fatalf("%s: offset %d after %d records", shard, r.Offset, len(out[shard]))
			}
			out[shard] = append(out[shard], string(r.Key)+" "+string(r.Value))
		}
		s.Close()
	}
	return out
}

func makeFixture(t *testing.T, fixture string) {
	t.Helper()
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := held{Commit: strings.TrimSpace(string(commit)), Cursor: 10}
	data := filepath.Join(fixture, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(data, 0o750); err != nil {
		t.Fatal(err)
	}
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Dir = data }))
	c := n.Connect()
	api, err := admin.FromContext(n.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ctx := within(t)
	for _, spec := range []admin.StreamSpec{{Name: "orders", Shards: new(2), SegmentBytes: new(int64(4 << 10))}, {Name: "versions"}} {
		if _, err := api.EnsureStream(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.EnsureCache(ctx, admin.CacheSpec{Name: "sessions", TTL: new(admin.Duration(time.Hour)), MaxKeys: new(int64(1000))}); err != nil {
		t.Fatal(err)
	}
	p := c.Publisher("orders", client.WithCompression(client.Zstd))
	for i := range 60 {
		rec := client.Record{Key: fmt.Appendf(nil, "order-%d", i%7), Value: fmt.Appendf(nil, "state %d %s", i, strings.Repeat("x", 200))}
		if i%9 == 0 {
			rec.DedupID = fmt.Sprintf("id-%d", i)
		}
		if _, err := p.Publish(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	v := c.Publisher("versions")
	for i := range 3 {
		if _, err := v.Publish(ctx, client.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", i)}, client.IfVersion(uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Subscribe(ctx, "orders", client.Durable("device"), client.FromEarliest(), client.ManualCommit())
	if err != nil {
		t.Fatal(err)
	}
	read10 := 0
	for _, err := range s.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if read10++; read10 == h.Cursor {
			break
		}
	}
	if err := s.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	s.Close()
	h.Queue = makeQueue(ctx, t, api, c)
	h.Records, h.Caches = read(t, c), caches(t, api)
	c.Close()
	n.Stop()
	if err := os.Remove(filepath.Join(data, "LOCK")); err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fixture, "held.json"), append(b, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}
