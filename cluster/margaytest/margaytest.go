// SPDX-License-Identifier: Apache-2.0

// Package margaytest gives a test a node of its own in one line; it uses a temporary directory and free
// ports of the loopback, and refuses to outlive the test.
package margaytest

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/node"
	"margay.dev/wire/control"
	"margay.dev/wire/session/sessiontest"
	"margay.dev/wire/token"
)

// patience is how long a node may take to start or stop before its test fails.
const patience = 30 * time.Second

// Node is a broker and a control plane in the test's process.
type Node struct {
	t      testing.TB
	cfg    node.Config
	info   node.Info
	cancel context.CancelFunc
	done   chan error
}

// Option changes how a node is started.
type Option func(*node.Config)

// With changes the node's configuration in any way.
func With(f func(*node.Config)) Option { return f }

// Start runs a node until the test ends. Its log goes to the test's when that fails or is verbose.
func Start(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n := &Node{t: t, cfg: node.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Version: "test", Grace: time.Second,
		Logger: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}}
	for _, o := range opts {
		o(&n.cfg)
	}
	n.start()
	t.Cleanup(n.Stop)
	return n
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func (n *Node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan node.Info, 1)
	n.cancel, n.done = cancel, make(chan error, 1)
	cfg := n.cfg
	cfg.Ready = func(i node.Info) {
		if n.cfg.Ready != nil {
			n.cfg.Ready(i)
		}
		ready <- i
	}
	go func() { n.done <- node.Run(ctx, cfg) }()
	select {
	case n.info = <-ready:
		// A node that restarts is found where it was.
		n.cfg.Listen, n.cfg.HTTP = n.info.Address, strings.TrimPrefix(strings.TrimPrefix(n.info.HTTP, "http://"), "https://")
		if err := control.SaveContext(n.ContextFile(), &n.info.Context); err != nil {
			n.t.Fatalf("save context: %v", err)
		}
	case err := <-n.done:
		cancel()
		n.cancel = nil
		n.t.Fatalf("start node: %v", err)
	case <-time.After(patience):
		cancel()
		n.t.Fatalf("the node was not ready within %v", patience)
	}
}

// Stop stops the node in order and waits for it. Stopping twice is stopping once.
func (n *Node) Stop() {
	if n.cancel == nil {
		return
	}
	n.t.Helper()
	n.cancel()
	n.cancel = nil
	select {
	case err := <-n.done:
		if err != nil {
			n.t.Errorf("stop node: %v", err)
		}
	case <-time.After(patience):
		n.t.Errorf("the node did not stop within %v", patience)
	}
}

// Restart stops the node and starts it again on its directory and addresses.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.start()
}

// StartAgain starts a node that was stopped, on its directory and addresses.
func (n *Node) StartAgain() {
	n.t.Helper()
	if n.cancel == nil {
		n.start()
	}
}

// Address is host:port of the broker.
func (n *Node) Address() string { return n.info.Address }

// URL is the broker's address for a client: margay://, or margay+tls:// when MARGAY_TEST_TRANSPORT is tls.
func (n *Node) URL() string { return sessiontest.URL(n.info.Address) }

// HTTP is the base URL of the control plane.
func (n *Node) HTTP() string { return n.info.HTTP }

// Context is how to reach the node; it holds the API key.
func (n *Node) Context() control.Context { return n.info.Context }

// ContextFile is a file with the context.
func (n *Node) ContextFile() string { return n.cfg.Dir + string(os.PathSeparator) + "context.yaml" }

// Dir is the data directory.
func (n *Node) Dir() string { return n.cfg.Dir }

// Token signs a token with these grants, good for life: what an application's test needs to see its
// permissions refused.
func (n *Node) Token(tenant string, life time.Duration, grants ...token.Grant) string {
	n.t.Helper()
	tok, err := n.info.Issue("test", tenant, grants, life)
	if err != nil {
		n.t.Fatalf("issue token: %v", err)
	}
	return tok
}

// Connect returns a client of the node, closed when the test ends.
func (n *Node) Connect(opts ...client.Option) *client.Client {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cc := n.info.Context
	c, err := client.Connect(ctx, n.URL(), append([]client.Option{client.WithContext(cc)}, opts...)...)
	if err != nil {
		n.t.Fatalf("connect: %v", err)
	}
	n.t.Cleanup(c.Close)
	return c
}
