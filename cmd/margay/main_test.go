// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"margay.dev/wire/control"
)

// asMargay makes this test's binary run as margay: the tests below see processes, signals and exit codes
// exactly as a user's shell does, without building the binary a second time.
const asMargay = "RUN_AS_MARGAY"

func TestMain(m *testing.M) {
	if os.Getenv(asMargay) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is how long anything may take before a test names what it waited for.
const patience = time.Minute

// home is a user with directories of his own.
type home struct {
	t   *testing.T
	dir string
	env []string
}

func newHome(t *testing.T) *home {
	t.Helper()
	dir := t.TempDir()
	h := &home{t: t, dir: dir, env: []string{
		asMargay + "=1", "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"),
		"GORACE=atexit_sleep_ms=10", // instead of a second for each command
	}}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "GOCOVERDIR=") {
			h.env = append(h.env, kv)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *home) command(args ...string) *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), self, args...)
	cmd.Env, cmd.Dir = h.env, h.dir
	return cmd
}

type result struct {
	code     int
	out, err string
}

// run runs a command line to its end.
func (h *home) run(stdin string, args ...string) result {
	h.t.Helper()
	cmd := h.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("margay %v: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok runs a command line that must succeed, and returns its output.
func (h *home) ok(args ...string) string {
	h.t.Helper()
	got := h.run("", args...)
	if got.code != 0 {
		h.t.Fatalf("margay %v: exit %d\n%s%s", args, got.code, got.out, got.err)
	}
	return got.out
}

// process is a command that goes on while the test does other things.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *record
	err  *record
	done chan struct{}
}

func (h *home) start(args ...string) *process {
	h.t.Helper()
	p := &process{t: h.t, name: strings.Join(args, " "), cmd: h.command(args...), out: newRecord(), err: newRecord(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	h.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if h.t.Failed() {
			h.t.Logf("margay %s:\n%s\n%s", p.name, p.out, p.err)
		}
	})
	return p
}

// say writes to the process's standard input, which stays open.
func (p *process) say(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, text); err != nil {
		p.t.Fatalf("write to margay %s: %v", p.name, err)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal margay %s: %v", p.name, err)
	}
}

// exit waits until the process ends by itself.
func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.signal(syscall.SIGQUIT) // its stacks say where it hangs
		<-p.done
		p.t.Fatalf("margay %s did not end within %v", p.name, within)
		return -1
	}
}

// record keeps what is written and wakes who waits for it.
type record struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newRecord() *record { return &record{changed: make(chan struct{}, 1)} }

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// await waits until text was written.
func (p *process) await(r *record, text string) {
	p.t.Helper()
	late := time.After(patience)
	for !strings.Contains(r.String(), text) {
		select {
		case <-r.changed:
		case <-p.done:
			if !strings.Contains(r.String(), text) {
				p.t.Fatalf("margay %s ended with %d and never wrote %q", p.name, p.cmd.ProcessState.ExitCode(), text)
			}
		case <-late:
			p.t.Fatalf("margay %s did not write %q within %v", p.name, text, patience)
		}
	}
}

// serve starts a node on free ports and returns once it is ready. Started again, it takes the same ports.
func (h *home) serve() *process {
	h.t.Helper()
	listen, http := "127.0.0.1:0", "127.0.0.1:0"
	if c, err := control.LoadContext(h.path(".local/share/margay/context.yaml")); err == nil {
		listen, http = c.Addresses[0], strings.TrimPrefix(c.HTTP, "http://")
	}
	p := h.start("serve", "--listen", listen, "--http", http)
	p.await(p.out, "margay serves at")
	return p
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

// objects reads one JSON object a line.
func objects[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	dec := json.NewDecoder(bufio.NewReader(strings.NewReader(text)))
	for {
		var one T
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("not JSON: %v in\n%s", err, text)
		}
		all = append(all, one)
	}
}
