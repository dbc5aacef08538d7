// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/load"
	"margay.dev/cluster/load/disk"
)

func quiet(string) {}

func TestRun(t *testing.T) {
	for _, f := range []disk.Fsync{disk.Always, disk.Interval, disk.Never} {
		t.Run(string(f), func(t *testing.T) {
			dir := t.TempDir()
			spec := disk.Spec{Writers: 2, Batch: 4096, Fsync: f, Rounds: 3, Duration: 20 * time.Millisecond}
			var said []string
			r, err := disk.Run(t.Context(), dir, spec, func(s string) { said = append(said, s) })
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Ratios) != 3 || r.Ratio <= 0 || r.Storage.BytesPerSecond <= 0 || r.Bare.Latency == nil || r.Interrupted {
				t.Errorf("%+v", r)
			}
			want := "round 1 of 3: storage,round 1 of 3: bare,round 2 of 3: bare,round 2 of 3: storage,round 3 of 3: storage,round 3 of 3: bare"
			if got := strings.Join(said, ","); got != want {
				t.Errorf("order of the rounds: %s", got)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			var b strings.Builder
			if err := disk.Print(&b, r); err != nil || !strings.Contains(b.String(), "ratio") {
				t.Errorf("%v: %s", err, b.String())
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	spec := disk.Spec{Writers: 1, Batch: 65536, Fsync: disk.Never, Rounds: 100, Duration: 10 * time.Millisecond}
	r, err := disk.Run(ctx, t.TempDir(), spec, func(s string) {
		if strings.HasPrefix(s, "round 3 ") {
			cancel()
		}
	})
	if err != nil || !r.Interrupted || len(r.Ratios) != 2 {
		t.Errorf("%+v, %v: want two whole rounds", r, err)
	}
	if _, err = disk.Run(ctx, t.TempDir(), spec, quiet); err == nil {
		t.Error("a run of no round has a result")
	}
}

func TestValidate(t *testing.T) {
	good := disk.Spec{Writers: 1, Batch: 256, Fsync: disk.Never, Rounds: 1, Duration: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := disk.Spec{Fsync: "often"}
	err := bad.Validate()
	for _, want := range []string{"--writers 0", "--batch 0", `--fsync "often"`, "--rounds 0", "--duration 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
}

// Who reads results by program relies on these names.
func TestResultJSON(t *testing.T) {
	side := disk.Side{BytesPerSecond: 1e6, BatchesPerSecond: 10, CPUPerBatch: 5, Latency: &load.Quantiles{Of: load.WriteDone, P50: 1}}
	r := disk.Result{
		System: "margay storage", Spec: disk.Spec{Writers: 8, Batch: 65536, Fsync: disk.Always, Rounds: 2, Duration: time.Second},
		Storage: side, Bare: side, Ratio: 0.9, Ratios: []float64{0.8, 1}, Interrupted: true,
	}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const s = `{"bytes_per_second":1000000,"batches_per_second":10,"cpu_us_per_batch":5,` +
		`"latency":{"of":"write","p50_us":1,"p90_us":0,"p99_us":0,"p999_us":0,"max_us":0}}`
	const want = `{"system":"margay storage","spec":{"writers":8,"batch_bytes":65536,"fsync":"always","rounds":2,"duration_ns":1000000000},` +
		`"storage":` + s + `,"bare":` + s + `,"ratio":0.9,"ratios":[0.8,1],"interrupted":true}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
