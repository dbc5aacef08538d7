// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/bench/internal/probe"
	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

// fake is every program of a comparison: a server that waits for the end of its input, and a driver that has measured already.
const fake = `#!/bin/sh
case "$1" in
serve) echo '{"addr":"127.0.0.1:7","pid":'$$'}'; while read line; do :; done;;
*) echo '{"system":"fake 1.0","spec":{"workload":"pub"},"messages":1000,"bytes":128000,"seconds":0.5,"rate":2000,
"latency":{"of":"ack from sent","p50_us":10,"p99_us":20},"client_cpu_us_per_message":1.5,
"server":{"pid":1,"cpu_us_per_message":2.5,"rss_bytes":1000000},"bytes_per_connection":5000,"rss_bytes":20000000,"fill_rate":500000,"open_stopped_seconds":1,"open_killed_seconds":2,"index_bytes_per_key":100,"disk_ratio":2,
"reclaim_p99_ratio":1,"expiry_p99_ratio":1,
"delayed_cpu_percent":0.1,"delayed_bytes_per_message":50,"open_seconds":1,"late_p99_ms":5,"group_bytes":1000,"groups_cpu_percent":0.1,"ranges_ratio":1,"work_rate":100000,
"storage":{"bytes_per_second":95e6},"bare":{"bytes_per_second":100e6}}';;
esac
`

// comparisonOfFakes is a whole run in which nothing is measured.
func comparisonOfFakes(t *testing.T, only string, rounds int) *comparison {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"margay", "limits", "bare", "driver", "keys", "queues", "nats", "redis", "etcd", "rabbitmq"} {
		script := fake
		if name == "redis" {
			script = "#!/bin/sh\necho 'redis-server is not installed' >&2\nexit 69\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := choose(planner{Binaries: systems.Binaries(dir), duration: "1s", warmup: "1s", quick: true}.plan(), only)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for i := range r.cells {
			r.cells[i].job.Node = false // there is nobody to ask
		}
	}
	return &comparison{
		options: options{rounds: rounds, data: t.TempDir(), duration: time.Second},
		root:    dir, binaries: dir, rows: rows, missing: map[string]string{"etcd": "does not build"},
		say:   t.Logf,
		probe: func() (probe.Reading, error) { return probe.Reading{CPU: 1, Flush: 1, Ping: 1}, nil },
	}
}

func TestEveryRowIsMeasured(t *testing.T) {
	c := comparisonOfFakes(t, "", 1)
	r, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Rows {
		for _, m := range s.Measured {
			if _, extra, shown := strings.Cut(m.ID, "#"); shown && (extra == recordsPerFlush || extra == allocsPerRecord || extra == allocsPerBatch) {
				continue // of a node's metrics
			}
			left := m.N == 0 && (strings.Contains(m.Missing, "redis-server is not installed") || strings.Contains(m.Missing, "does not build"))
			if m.N != 1 && !left {
				t.Errorf("%s: %d samples, %s", m.ID, m.N, m.Missing)
			}
			if peer := strings.HasPrefix(m.System, "Redis") || strings.HasPrefix(m.System, "etcd"); peer != left {
				t.Errorf("%s: left out %v", m.ID, left)
			}
		}
		for _, o := range s.Outcomes {
			ofNode := o.Of.Extra == recordsPerFlush || o.Of.Extra == allocsPerRecord
			if o.Verdict == table.Open && !ofNode && !strings.Contains(o.Claim.Against.Cell, "redis") && !strings.Contains(o.Claim.Against.Cell, "etcd") {
				t.Errorf("%s: %s is open", s.ID, o.Claim.What)
			}
		}
	}
	if len(r.Log.Faults) != 0 {
		t.Errorf("faults: %+v", r.Log.Faults)
	}
	if left, err := os.ReadDir(c.data); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var text, page bytes.Buffer
	if err := errors.Join(r.Text(&text), r.Page(&page)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{c.root, c.data} {
		if strings.Contains(text.String()+page.String(), dir) {
			t.Errorf("the report names %s, a path of this machine", dir)
		}
	}
}

// TestClaimsNameCells: every claim is about cells that are measured in its row or in one before.
func TestClaimsNameCells(t *testing.T) {
	known := map[string]bool{}
	ids := map[string]bool{}
	for _, r := range (planner{}).plan() {
		if ids[r.ID] {
			t.Errorf("two rows are %s", r.ID)
		}
		ids[r.ID] = true
		for _, c := range r.Cells {
			if known[c.ID] || c.Unit == "" || c.System == "" {
				t.Errorf("cell %s: twice, or without a unit or a system", c.ID)
			}
			known[c.ID] = true
		}
		for _, c := range r.Claims {
			names := []string{c.Bare, c.Against.Cell, c.Plus.Cell}
			for _, o := range c.Of {
				names = append(names, o.Cell)
			}
			for _, n := range names {
				if n != "" && !known[n] {
					t.Errorf("%s: %s names %s, which nobody measures", r.ID, c.What, n)
				}
			}
			if (c.AtLeast == 0) == (c.AtMost == 0) || (c.Number == 0) == (c.Against.Cell == "") {
				t.Errorf("%s: %s: want one target, and one thing to compare with", r.ID, c.What)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string][]string{
		"fanout-10":       {"fanout-10"},
		"fanout":          {"fanout-10", "fanout-100", "fanout-1000"},
		"lane, publish-1": {"publish-1", "lane"},
	} {
		rows, err := choose((planner{}).plan(), only)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", only, got, want)
		}
	}
	if _, err := choose((planner{}).plan(), "nonsense"); err == nil {
		t.Error("nonsense was chosen")
	}
}

func TestFailuresAreSaid(t *testing.T) {
	c := comparisonOfFakes(t, "storage", 3)
	if err := os.WriteFile(filepath.Join(c.binaries, "margay"), []byte("#!/bin/sh\necho 'disk on fire' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(t.Context()); err == nil {
		t.Error("a run that measured nothing is no error")
	}
	m := &measurer{root: c.root, binaries: c.binaries, data: c.data, cells: map[string]cell{"x": c.rows[0].cells[0]}}
	_, err := m.measure(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "disk on fire") || errors.Is(err, rounds.ErrMissing) || strings.Contains(err.Error(), c.data) {
		t.Errorf("error %v", err)
	}
	lost := `#!/bin/sh` + "\n" + `echo '{"rate":5,"errors":3,"first_error":"no room"}'` + "\n"
	if err := os.WriteFile(filepath.Join(c.binaries, "margay"), []byte(lost), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := m.measure(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("messages that failed: %v", err)
	}
}

func TestCtrlCLeavesNothing(t *testing.T) {
	c := comparisonOfFakes(t, "publish-1k", 3)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	c.probe = func() (probe.Reading, error) {
		if n++; n == 12 {
			cancel()
		}
		return probe.Reading{CPU: 1, Flush: 1, Ping: 1}, nil
	}
	r, err := c.run(ctx)
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Log.Records) == 0 {
		t.Errorf("report %v, error %v", r, err)
	}
	if left, err := os.ReadDir(c.data); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A page finds the one that says how to read it, whatever directory it is written to.
func TestGuide(t *testing.T) {
	root := t.TempDir()
	for out, want := range map[string]string{
		"docs/benchmarks":        "README.md",
		"docs/benchmarks/queues": "../README.md",
		"docs":                   "benchmarks/README.md",
		"bin/a/b":                "../../../docs/benchmarks/README.md",
	} {
		if got := guide(root, filepath.Join(root, out)); got != want {
			t.Errorf("%s: %s: want %s", out, got, want)
		}
	}
	if got := guide(root, ""); got != "README.md" {
		t.Errorf("none: %s", got)
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-quick", "-rounds", "7"}, io.Discard)
	if err != nil || o.rounds != 1 || o.duration > time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-rounds", "0"}, {"publish"}, {"-duration", "-1s"}, {"-nonsense"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-list", "-only", "storage"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "storage/margay") {
		t.Errorf("listed %q, %v", out.String(), err)
	}
}
