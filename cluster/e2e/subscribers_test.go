// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// subscriberVariable names the context file for a process of this test binary that only subscribes and waits to be killed.
const subscriberVariable = "E2E_SUBSCRIBER"

const (
	subscriberClients = 25
	subscriptionsEach = 4
	attached          = "attached "
)

// A client process that dies takes its subscriptions with it: the gauges are back where they were, and so are the node's
// goroutines, while the node goes on (SB-11).
func TestSubscriptionsOfADeadProcessEnd(t *testing.T) {
	t.Parallel()
	rounds := 1
	if !testing.Short() {
		rounds = 5
	}
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "watched", Shards: new(2)})
	pub := p.Connect().Publisher("watched")
	publish(t, pub, "k", "v")
	connections, goroutines := gauge(t, p, "margay_connections"), gauge(t, p, "go_goroutines")
	const want = subscriberClients * subscriptionsEach
	for range rounds {
		kill := startSubscribers(t, p)
		eventually(t, "the subscriptions to be counted", func() bool { return gauge(t, p, "margay_subscriptions") == want })
		kill()
		publish(t, pub, "k", "while they die") // what is sent to the dead must not pile up or hold anybody back
		eventually(t, "the gauge of subscriptions to be 0 again", func() bool { return gauge(t, p, "margay_subscriptions") == 0 })
		eventually(t, "the gauge of connections to be what it was", func() bool { return gauge(t, p, "margay_connections") <= connections })
		eventually(t, "the node's goroutines to end", func() bool { return gauge(t, p, "go_goroutines") <= goroutines+10 })
	}
	publish(t, pub, "k", "v")
}

func gauge(t *testing.T, p *process.Process, name string) float64 {
	t.Helper()
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	v, ok := m[name]
	if !ok {
		t.Fatalf("there is no metric %s", name)
	}
	return v
}

// startSubscribers runs a process that holds the subscriptions, and returns what kills it.
func startSubscribers(t *testing.T, p *process.Process) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), subscriberVariable+"="+p.ContextFile())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // ends with this process, and with it the subscribers
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // it may have ended by itself, which the gauge shows
		_ = cmd.Wait()
		_ = stdin.Close()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != attached+strconv.Itoa(subscriberClients*subscriptionsEach)+"\n" {
		t.Fatalf("the subscribers said %q (%v)", line, err)
	}
	return kill
}

// subscriberProcess subscribes many times, says so, and reads nothing any more until its standard input ends.
func subscriberProcess() {
	if err := subscribeMany(context.Background(), os.Getenv(subscriberVariable)); err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

func subscribeMany(ctx context.Context, contextFile string) error {
	k, err := control.LoadContext(contextFile)
	if err != nil {
		return err
	}
	n := 0
	for range subscriberClients {
		c, err := client.Connect(ctx, "", client.WithContext(*k))
		if err != nil {
			return err
		}
		for range subscriptionsEach {
			if _, err := c.Subscribe(ctx, "watched", client.FromEarliest()); err != nil {
				return err
			}
			n++
		}
	}
	fmt.Printf("%s%d\n", attached, n)
	return nil
}
