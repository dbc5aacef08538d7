// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// churnVariable names the context file for a process of this test binary that subscribes, cancels, subscribes again and
// waits to be killed.
const churnVariable = "E2E_CHURN"

const churnStream = "churned"

// usage is what a node holds.
type usage struct {
	connections, goroutines, rss float64
	descriptors                  int
}

func (u usage) String() string {
	return fmt.Sprintf("%.0f connections, %.0f goroutines, %d descriptors, %.1f MiB resident", u.connections, u.goroutines, u.descriptors, u.rss/(1<<20))
}

// used asks a node what it holds, behind a collection of its garbage.
func used(t *testing.T, p *process.Process) usage {
	t.Helper()
	tok, err := p.Control().Token(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds what finalizers of the first let go
		req, err := http.NewRequestWithContext(within(t), http.MethodGet, p.HTTP()+"/debug/pprof/heap?gc=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tok.Token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("collect the node's garbage: %s", res.Status)
		}
	}
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return usage{m["margay_connections"], m["go_goroutines"], m["process_resident_memory_bytes"], len(p.Descriptors())}
}

// Clients that subscribe, cancel and die leave nothing behind in the node, however many there were.
func TestChurnLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cycles := 100
	if !testing.Short() {
		cycles = 1000
	}
	// A node notices that a killed client is gone when it has been silent for so long. With the default of half a minute
	// more and more of them are held at once, up to the end, and what grows with the most there ever were (the runtime's
	// list of goroutines, for one) could not be told from what grows with each.
	p := process.Start(t, process.Config{Args: []string{"--set", "session.keepalive=1s", "--set", "session.idle=2s"}})
	create(t, p, control.StreamSpec{Name: churnStream, Shards: new(2)})
	pub := p.Connect().Publisher(churnStream)
	publish(t, pub, "k", "first")
	connections := gauge(t, p, "margay_connections")
	settled := func(cond func() bool) {
		t.Helper()
		eventually(t, "the connections of dead clients to be given up", func() bool { return gauge(t, p, "margay_connections") <= connections })
		eventually(t, "the subscriptions of dead clients to end", func() bool { return gauge(t, p, "margay_subscriptions") == 0 })
		eventually(t, "what they held to be given back", cond)
	}
	round := func(n int) {
		t.Helper()
		for i := range n {
			churn(t, p)
			if i%10 == 0 {
				publish(t, pub, "k", "while they come and go")
			}
		}
	}

	round(max(cycles/10, 50)) // as many as are held at once: what a node keeps for the next client is there from here on
	settled(func() bool { return true })
	start := used(t, p)
	round(cycles)
	var end usage
	defer func() { t.Logf("%d cycles\nbefore: %v\nafter:  %v", cycles, start, end) }()
	settled(func() bool {
		end = used(t, p)
		return end.goroutines <= start.goroutines && end.descriptors <= start.descriptors &&
			(process.RaceDetector() || end.rss <= start.rss+slack(start.rss))
	})
}

// slack is by how much resident memory differs between two looks at a node that did nothing.
func slack(rss float64) float64 { return 4<<20 + rss/10 }

// churn is one client's life and end.
func churn(t *testing.T, p *process.Process) {
	t.Helper()
	cmd := exec.CommandContext(within(t), os.Args[0])
	cmd.Env = append(os.Environ(), churnVariable+"="+p.ContextFile())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = cmd.Process.Kill() // it may have ended by itself, which its line shows
	_ = cmd.Wait()
	if err != nil || line != attached+"\n" {
		t.Fatalf("the client said %q (%v)", line, err)
	}
}

// churnProcess is the client.
func churnProcess() {
	err := subscribeAndCancel(context.Background(), os.Getenv(churnVariable))
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	fmt.Println(attached)
	select {} // until it is killed
}

func subscribeAndCancel(ctx context.Context, contextFile string) error {
	k, err := control.LoadContext(contextFile)
	if err != nil {
		return err
	}
	c, err := client.Connect(ctx, "", client.WithContext(*k))
	if err != nil {
		return err
	}
	first, err := c.Subscribe(ctx, churnStream, client.FromEarliest())
	if err != nil {
		return err
	}
	for _, err := range first.Records(ctx) {
		if err != nil {
			return err
		}
		break
	}
	first.Close()
	_, err = c.Subscribe(ctx, churnStream)
	return err
}
