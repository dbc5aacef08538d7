// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/table"
)

var update = flag.Bool("update", false, "write testdata anew")

// sample is a report with one of each: met, met by the bare prototype, not met, by the way, a number, left out, stormy.
func sample() *Report {
	rows := []table.Row{
		{
			ID: "publish-128", What: "Durable publish, 128 B, 500 in flight", Note: "Acknowledged after the flush.",
			Cells: []table.Cell{
				{ID: "publish-128/margay-quic", System: "Margay, QUIC", Unit: "/s"},
				{ID: "publish-128/jetstream", System: "JetStream", Unit: "/s"},
				{ID: "publish-128/redis", System: "Redis, always", Unit: "/s"},
				{ID: "publish-128/bare", System: "bare prototype", Unit: "/s"},
			},
			Claims: []table.Claim{
				{
					What: "over JetStream", Of: []table.Operand{{Cell: "publish-128/margay-quic"}},
					Against: table.Operand{Cell: "publish-128/jetstream"}, AtLeast: 3, Bare: "publish-128/bare",
				},
				{
					What: "over Redis", Of: []table.Operand{{Cell: "publish-128/margay-quic"}},
					Against: table.Operand{Cell: "publish-128/redis"}, AtLeast: 1.2,
				},
				{
					What: "bare over Redis", Of: []table.Operand{{Cell: "publish-128/bare"}},
					Against: table.Operand{Cell: "publish-128/redis"}, AtLeast: 99, Also: true,
				},
				{
					What: "tenfold", Of: []table.Operand{{Cell: "publish-128/margay-quic"}},
					Against: table.Operand{Cell: "publish-128/jetstream"}, AtLeast: 10,
				},
			},
		},
		{
			ID: "idle", What: "Memory of an idle node", Rounds: 1,
			Cells: []table.Cell{{ID: "idle/margay", System: "Margay", Unit: "B"}},
			Claims: []table.Claim{
				{What: "resident memory", Of: []table.Operand{{Cell: "idle/margay"}}, Number: 40 << 20, Unit: "B", AtMost: 1},
			},
		},
		{ID: "limits", What: "Limits", Cells: []table.Cell{{ID: "limits/flush", System: "append and flush 4 KiB", Unit: "/s"}}},
	}
	l := &rounds.Log{
		About:     map[string]rounds.About{"publish-128/margay-quic": {Version: "v0.3.0", Command: "margay bench pub", Server: "margay serve"}},
		Missing:   map[string]string{"publish-128/redis": "redis-server: not installed here\nand more"},
		Faults:    []rounds.Fault{{Cell: "publish-128/jetstream", Round: 1, Why: "no answer"}},
		Discarded: 2, Stormy: 1, Waited: 1500 * time.Millisecond,
	}
	add := func(round int, cell string, v float64, stormy bool) {
		l.Records = append(l.Records, rounds.Record{
			Sample: table.Sample{
				Cell: cell, Round: round, Value: v, Stormy: stormy,
				Extra: map[string]float64{table.P50: 812.4, table.P99: 2150, table.ServerCPU: 1.234, table.ClientCPU: 0.8},
			},
			Raw: json.RawMessage(`{"rate":1}`), Tries: 1,
		})
	}
	for round, v := range []float64{400_000, 420_000, 410_000} {
		add(round, "publish-128/margay-quic", v, round == 2)
		add(round, "publish-128/jetstream", 200_000, false)
		add(round, "publish-128/bare", 440_000, false)
		add(round, "limits/flush", 4000+float64(round), false)
	}
	add(0, "idle/margay", 31<<20, false)
	return &Report{
		When: time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC), Took: "17m", Command: "go run ./bench/versus", Rounds: 3, Cell: "2s", Procs: "unset",
		Machine: Machine{CPU: "A processor", Cores: 2, Memory: "24 GiB", Kernel: "Linux 6.1", FileSystem: "ext4", Go: "go1.26.8"},
		Systems: []System{{Name: "Margay", Version: "v0.3.0", Tuning: "defaults"}, {Name: "JetStream", Version: "2.15.2", Tuning: "file storage"}},
		Rows:    Sections(rows, l), Log: l,
	}
}

func golden(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s is not what was written (-update after looking at it):\n%s", file, got.String())
	}
	return got.String()
}

func TestPage(t *testing.T) {
	page := golden(t, "page.golden", sample().Page)
	if strings.Contains(page, "\n\n\n") || strings.Contains(page, "<no value>") {
		t.Error("the page has holes")
	}
}

func TestText(t *testing.T) { golden(t, "text.golden", sample().Text) }

func TestPlotIsOneSVG(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Plot(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "over JetStream", "resident memory"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Report{Log: &rounds.Log{}}).Plot(io.Discard); err != nil {
		t.Errorf("a plot of nothing: %v", err)
	}
}

func TestWhatIsWrittenCanBeReadBack(t *testing.T) {
	dir := t.TempDir()
	r := sample()
	if err := r.Write(dir, "versus"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "versus.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Log.Records) != len(r.Log.Records) || back.Rows[0].Verdict != table.NotMet || back.Rows[1].Verdict != table.Met {
		t.Errorf("read back %+v", back)
	}
	for _, name := range []string{"versus.md", "versus.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNearestMount(t *testing.T) {
	const mounts = "dev / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nproc /proc proc rw 0 0\nx /tmpfoo xfs rw 0 0\n"
	for dir, want := range map[string]string{"/home/a": "ext4", "/tmp": "tmpfs", "/tmp/a/b": "tmpfs", "/tmpfoo/a": "xfs", "/tmpfo": "ext4"} {
		if got := nearestMount(mounts, dir); got != want {
			t.Errorf("%s is on %s, want %s", dir, got, want)
		}
	}
}
