// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
		"pub --messages 200 --transport tls --in-flight 1 --clients 3":  200,
		"sub --messages 400 --subscribers 2":                            800,
		"fanout --messages 100 --subscribers 6 --connections 2":         600,
		"fanout --messages 100 --storage memory --size 4096 --rate 500": 100,
	} {
		fields := append([]string{"bench"}, strings.Fields(args)...)
		if !strings.HasPrefix(args, "sub") {
			fields = append(fields, "--warmup", "0s")
		}
		r := benchResult(t, p.Must(nil, append(fields, "--json", "--timeout", "1m")...))
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

// ownBench is `margay bench pub` with a node of its own below dir, not started yet.
type ownBench struct {
	cmd       *exec.Cmd
	dir       string
	out, errs bytes.Buffer
}

func newOwnBench(t *testing.T, args ...string) *ownBench {
	t.Helper()
	b := &ownBench{dir: t.TempDir()}
	b.cmd = exec.CommandContext(within(t), process.Binary(t), append([]string{"bench", "pub", "--dir", b.dir, "--warmup", "0s", "--timeout", "1m"}, args...)...)
	b.cmd.Env = append(os.Environ(), "MARGAY_CONTEXT=", "MARGAY_ADDRESS=")
	b.cmd.Stdout, b.cmd.Stderr, b.cmd.WaitDelay = &b.out, &b.errs, time.Second
	return b
}

// busy starts it and waits until messages are stored.
func (b *ownBench) busy(t *testing.T) {
	t.Helper()
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "messages to be stored", func() bool {
		segments, err := filepath.Glob(filepath.Join(b.dir, "*", "data", "shards", "*", "*", "*.seg"))
		if err != nil || len(segments) == 0 {
			return false
		}
		info, err := os.Stat(segments[0])
		return err == nil && info.Size() > 20_000
	})
}

func (b *ownBench) leftNothing(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(b.dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A bench without a node starts its own, accounts for it, and leaves nothing.
func TestBenchWithANodeOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newOwnBench(t, "--messages", "1000")
	if err := b.cmd.Run(); err != nil || !strings.Contains(b.out.String(), "1,000 acknowledged") || !strings.Contains(b.out.String(), "CPU       server") {
		t.Errorf("%v: %s%s", err, &b.out, &b.errs)
	}
	b.leftNothing(t)
}

// Ctrl-C ends a bench with what it has.
func TestInterruptedBench(t *testing.T) {
	t.Parallel()
	b := newOwnBench(t, "--duration", "1h", "--json")
	b.busy(t)
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, &b.out, &b.errs)
	}
	if r := benchResult(t, b.out.String()); !r.Interrupted || r.Messages == 0 || r.Missing != 0 || r.Server == nil || r.Server.RSS == 0 {
		t.Errorf("%+v", r)
	}
	b.leftNothing(t)
}

// Figures of a node that died are none.
func TestBenchWhoseNodeDies(t *testing.T) {
	t.Parallel()
	b := newOwnBench(t, "--duration", "1h")
	b.busy(t)
	locks, err := filepath.Glob(filepath.Join(b.dir, "*", "data", "LOCK"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%v, %v: want the one lock of the node", locks, err)
	}
	text, err := os.ReadFile(locks[0])
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid == b.cmd.Process.Pid {
		t.Fatalf("process %q: %v", text, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Wait(); err == nil || b.out.Len() > 0 || !strings.Contains(b.errs.String(), "ended by itself") {
		t.Errorf("%v: %s%s: want an error that says so, and no figures", err, &b.out, &b.errs)
	}
	b.leftNothing(t)
}
