// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/process"
)

func TestMain(m *testing.M) { process.Main(m) }

const patience = 60 * time.Second

// helperVariable makes TestHelper what it is: a test process that starts a node and waits to be killed.
const helperVariable = "PROCESS_TEST_HELPER"

func TestANodeComesBackOnItsPortsAndDirectory(t *testing.T) {
	p := process.Start(t, process.Config{})
	p.Must(nil, "stream", "create", "kept")
	c := p.Connect()
	pub := c.Publisher("kept")
	publish := func(value string) client.Ack {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ack, err := pub.Publish(ctx, client.Record{Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	publish("one")
	p.Kill()
	p.Start()
	if ack := publish("two"); ack.Offset != 1 {
		t.Fatalf("after a kill the next record has offset %d, want 1", ack.Offset)
	}
	if exit := p.Stop(); exit.Code != 0 {
		t.Fatalf("SIGTERM: %v\n%s", exit, exit.Stderr)
	}
	p.Start()
	if got := p.Must(nil, "sub", "kept", "--from", "earliest", "--end", "--output", "raw"); got != "one\ntwo\n" {
		t.Fatalf("read back %q", got)
	}
}

func TestAFrozenNodeAnswersOnlyOnceItIsResumed(t *testing.T) {
	p := process.Start(t, process.Config{})
	p.Must(nil, "stream", "create", "frozen")
	pub := p.Connect().Publisher("frozen")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := pub.Publish(ctx, client.Record{Value: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	future := pub.PublishAsync(ctx, client.Record{Value: []byte("meanwhile")})
	select {
	case <-future.Done():
		t.Fatal("a frozen node has answered")
	default:
	}
	p.Resume()
	if _, err := future.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsAndDescriptorsAreThoseOfTheNode(t *testing.T) {
	p := process.Start(t, process.Config{})
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m["margay_subscriptions"]; !ok {
		t.Fatalf("no gauge of subscriptions among %d metrics", len(m))
	}
	open := strings.Join(p.Descriptors(), "\n")
	if !strings.Contains(open, p.Data()+"/LOCK") || !strings.Contains(open, "socket:") {
		t.Fatalf("open are:\n%s", open)
	}
}

// A test process that is killed takes its nodes with it: otherwise each aborted run would leave some behind.
func TestANodeDiesWithItsTest(t *testing.T) {
	helper := exec.Command(os.Args[0], "-test.run=^TestHelper$", "-test.v")
	helper.Env = append(os.Environ(), helperVariable+"=1", "TMPDIR="+t.TempDir()) // nobody will clean up behind it
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	defer helper.Wait() // it is killed
	defer helper.Process.Kill()
	pid := 0
	var said bytes.Buffer
	for lines := bufio.NewScanner(stdout); pid == 0 && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		_, _ = fmt.Sscanf(lines.Text(), "node %d", &pid)
	}
	if pid == 0 {
		t.Fatalf("the helper started no node:\n%s", said.String())
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the node does not run: %v", err)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return true
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // in a container without an init it stays a zombie
		return err != nil || strings.Contains(string(status), ") Z ")
	}
	tick, late := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !gone() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v for the node to die with its test", patience)
		}
	}
}

func TestHelper(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		t.Skip("only runs as a process of TestANodeDiesWithItsTest")
	}
	p := process.Start(t, process.Config{})
	fmt.Printf("\nnode %d\n", p.PID())
	<-t.Context().Done() // until it is killed, or the go test deadline
}
