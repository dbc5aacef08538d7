// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"margay.dev/cluster/process"
)

const notThere = 5 // the exit code

// The commands on keys do what they say, over a kill: what was acknowledged is there, at its version, what was refused
// changed nothing, and the exit code tells which.
func TestKeysFromTheCommandLineOverAKill(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "cache", "create", "it", "--shards", "3")
	p.Must(strings.NewReader("from a pipe"), "put", "it", "piped")
	first := p.Must(nil, "put", "it", "a", "one", "--if-absent", "-o", "raw")
	if got := p.Command(nil, "put", "it", "a", "two", "--if-absent"); got.Code != refused || !strings.Contains(got.Stderr, "conflict") {
		t.Errorf("put of what is there: %+v", got)
	}
	p.Must(nil, "put", "it", "a", "two", "--if-version", strings.TrimSpace(first), "--ttl", "1h", "--header", "by=me")
	p.Must(nil, "put", "it", "--", "dash", "-2")
	p.Must(nil, "incr", "it", "n")
	if sum := p.Must(nil, "incr", "it", "n", "-o", "raw", "--", "-3"); sum != "-2\n" {
		t.Errorf("the sum is %q", sum)
	}
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "bulk/%03d\tvalue %d\n", i, i)
	}
	p.Must(strings.NewReader(lines.String()), "put", "it", "--lines")
	p.Must(nil, "del", "it", "bulk/000", "bulk/001")
	before := p.Must(nil, "cache", "keys", "it", "--values", "-o", "json")
	p.Kill()
	p.Start()

	if after := p.Must(nil, "cache", "keys", "it", "--values", "-o", "json"); after != before {
		t.Errorf("before the kill\n%s\nafter\n%s", before, after)
	}
	if n := p.Must(nil, "cache", "keys", "it", "--prefix", "bulk/", "--count"); n != "298\n" {
		t.Errorf("there are %q keys", n)
	}
	var e struct {
		Key, Value, Expires string
		Headers             []struct{ Key, Value string }
	}
	if err := json.Unmarshal([]byte(p.Must(nil, "get", "it", "a", "-o", "json")), &e); err != nil {
		t.Fatal(err)
	}
	if e.Value != "two" || e.Expires == "" || len(e.Headers) != 1 || e.Headers[0].Value != "me" {
		t.Errorf("a is %+v", e)
	}
	if got := p.Command(nil, "get", "it", "piped", "bulk/000", "dash", "-o", "raw"); got.Code != notThere || got.Stdout != "from a pipe\n-2\n" || !strings.Contains(got.Stderr, "bulk/000") {
		t.Errorf("get of some that are there: %+v", got)
	}
	for _, args := range []string{"get it none --stale", "touch it none --ttl 1h", "get none a", "put none a b", "watch none", "cache keys none"} {
		if got := p.Command(nil, strings.Fields(args)...); got.Code != notThere || got.Stdout != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	dumped := p.Must(nil, "cache", "keys", "it", "--values", "--prefix", "bulk/", "-o", "raw")
	p.Must(nil, "cache", "create", "copy")
	p.Must(strings.NewReader(dumped), "put", "copy", "--lines")
	if again := p.Must(nil, "cache", "keys", "copy", "--values", "-o", "raw"); again != dumped {
		t.Error("a copy by --values and --lines is not the same")
	}
	p.Must(nil, "del", "it", "--prefix", "bulk/")
	if keys := p.Must(nil, "cache", "keys", "it"); keys != "a\ndash\nn\npiped\n" {
		t.Errorf("left is %q", keys)
	}
}

// A watch from the command line goes on over a kill of the node, each change told once, and says on standard error that it
// lost the node and has it again.
func TestAWatchFromTheCommandLineOutlivesTheNode(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "cache", "create", "it", "--shards", "2")
	p.Must(nil, "put", "it", "a", "1")
	out, errs, wait := tailCommand(t, p, "watch", "it", "--snapshot", "--count", "4")
	want := func(prefix string) {
		t.Helper()
		select {
		case line := <-out:
			if fields := strings.Split(line, "\t"); !strings.HasPrefix(strings.Join(append(fields[:1:1], fields[min(2, len(fields)):]...), " "), prefix) {
				t.Errorf("told %q, want %q", line, prefix)
			}
		case <-within(t).Done():
			t.Fatalf("waited for %q", prefix)
		}
	}
	want("put a 1")
	want("snapshot complete")
	p.Must(nil, "put", "it", "a", "2")
	want("put a 2")
	p.Kill()
	p.Start()
	p.Must(nil, "put", "it", "b", "3")
	want("put b 3")
	p.Must(nil, "del", "it", "a")
	want("deleted a")
	var said strings.Builder
	for line := range errs {
		said.WriteString(line + "\n")
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
	if s := said.String(); !strings.Contains(s, "lost the broker") || !strings.Contains(s, "connected again") || strings.Index(s, "lost") > strings.Index(s, "again, going") {
		t.Errorf("it said %q", s)
	}
}

// tailCommand runs a command against a node and gives its lines as they come. wait is for its end, by itself.
func tailCommand(t *testing.T, p *process.Process, args ...string) (out, errs <-chan string, wait func() error) {
	t.Helper()
	cmd := exec.CommandContext(within(t), process.Binary(t), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "MARGAY_CONTEXT="+p.ContextFile(), "MARGAY_ADDRESS="+p.URL())
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := func(r io.Reader) (<-chan string, <-chan struct{}) {
		lines, done := make(chan string, 1024), make(chan struct{})
		go func() {
			defer close(done)
			defer close(lines)
			for s := bufio.NewScanner(r); s.Scan(); {
				lines <- s.Text()
			}
		}()
		return lines, done
	}
	out, outDone := read(stdout)
	errs, errsDone := read(stderr)
	wait = sync.OnceValue(func() error {
		<-outDone
		<-errsDone
		return cmd.Wait()
	})
	t.Cleanup(func() { _ = wait() }) // the test's context has ended it
	return out, errs, wait
}
