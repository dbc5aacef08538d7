// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/cluster/load"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

func benchResult(t *testing.T, out string) load.Result {
	t.Helper()
	var r load.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// A bench of a node that runs: streams that it makes are gone afterwards, one that it is given stays, and figures are of
// whole runs.
func TestBenchOfANode(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "mine", Shards: new(2)})
	for args, deliveries := range map[string]int64{
		"pub --messages 500 --clients 2 --shards 3":                     500,
		"pub mine --messages 300 --ack leader":                          300,
		"latency --messages 200 --rate 2000":                            200,
		"sub --messages 400 --subscribers 2":                            800,
		"fanout --messages 100 --subscribers 6 --connections 2":         600,
		"fanout --messages 100 --storage memory --size 4096 --rate 500": 100,
	} {
		fields := append([]string{"bench"}, strings.Fields(args)...)
		if !strings.HasPrefix(args, "sub") {
			fields = append(fields, "--warmup", "0s")
		}
		r := benchResult(t, p.Must(nil, append(fields, "--json")...))
		if r.Messages != deliveries || r.Errors != 0 || r.Missing != 0 || r.Server != nil {
			t.Errorf("margay bench %s: %+v, want %d messages, and no word of a server that it does not know", args, r, deliveries)
		}
	}
	cc := p.Context()
	l, err := p.Control().Streams(within(t), cc.Tenant, cc.Namespace, "", 0)
	if err != nil || len(l.Items) != 1 || l.Items[0].Name != "mine" {
		t.Errorf("streams afterwards: %+v, %v: want mine and no other", l.Items, err)
	}
	if r := p.Command(nil, "bench", "pub", "nothing"); r.Code != 5 || !strings.Contains(r.Stderr, "stream create") {
		t.Errorf("a stream that is not there: %+v", r)
	}
}

// A bench without a node starts its own, accounts for it, and leaves nothing: also when it is interrupted, which ends it
// with what it has.
func TestBenchWithANodeOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bench := func(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(within(t), process.Binary(t), append([]string{"bench", "pub", "--dir", dir, "--warmup", "0s"}, args...)...)
		cmd.Env = append(os.Environ(), "MARGAY_CONTEXT=", "MARGAY_ADDRESS=")
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
		return cmd, &out, &errs
	}
	empty := func() {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	cmd, out, errs := bench("--messages", "1000")
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "1,000 acknowledged") || !strings.Contains(out.String(), "CPU       server") {
		t.Errorf("%v: %s%s", err, out, errs)
	}
	empty()

	cmd, out, errs = bench("--duration", "1h", "--json")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "messages to be stored", func() bool {
		segments, err := filepath.Glob(filepath.Join(dir, "*", "data", "shards", "*", "*", "*.seg"))
		if err != nil || len(segments) == 0 {
			return false
		}
		info, err := os.Stat(segments[0])
		return err == nil && info.Size() > 20_000
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if r := benchResult(t, out.String()); !r.Interrupted || r.Messages == 0 || r.Missing != 0 || r.Server == nil || r.Server.RSS == 0 {
		t.Errorf("%+v", r)
	}
	empty()
}
