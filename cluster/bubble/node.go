// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/node"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/control"
)

// Where the node is.
const (
	address    = "10.0.0.2:7420"
	webAddress = "127.0.0.1:7421"
)

// patience is how long, in virtual time, a node may take to start or stop.
const patience = 5 * time.Minute

// NodeAddress is where the node listens.
func NodeAddress() netip.AddrPort { return netip.MustParseAddrPort(address) }

// Node is a broker and its control plane. The methods of its life belong to one goroutine.
type Node struct {
	b      *Bubble
	cfg    node.Config
	scheme string
	info   node.Info
	disk   *memfs.FS
	faults *faultfs.FS
	cancel context.CancelFunc
	done   chan error
}

// Start starts a node on an empty disk; the test's end stops it. The catalog lies on the machine's own file system,
// which does not crash.
func (b *Bubble) Start(with ...func(*node.Config)) *Node {
	b.t.Helper()
	n := &Node{b: b, scheme: "margay://", disk: memfs.New(b.Rand("disk")), cfg: node.Config{
		Dir: b.t.TempDir(), Listen: address, HTTP: webAddress, Version: "test", Grace: 100 * time.Millisecond,
		Sockets: b.Network, Logger: slog.New(slog.NewTextHandler(testLog{b.t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}}
	for _, f := range with {
		f(&n.cfg)
	}
	n.Boot()
	b.t.Cleanup(n.Stop)
	return n
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// Boot starts the node on what its disk holds.
func (n *Node) Boot() {
	n.b.t.Helper()
	n.faults = faultfs.Wrap(n.disk)
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan node.Info, 1)
	n.cancel, n.done = cancel, make(chan error, 1)
	cfg := n.cfg
	cfg.FS = n.faults
	cfg.Ready = func(i node.Info) { ready <- i }
	done := n.done
	go func() { done <- node.Run(ctx, cfg) }()
	select {
	case n.info = <-ready:
		if err := control.SaveContext(n.cfg.Dir+"/context.yaml", &n.info.Context); err != nil {
			n.b.t.Fatalf("save context: %v", err)
		}
	case err := <-done:
		cancel()
		n.cancel = nil
		n.b.t.Fatalf("start node: %v", err)
	case <-time.After(patience):
		cancel()
		n.b.t.Fatalf("the node was not ready within %v", patience)
	}
}

// Stop stops the node in order. Stopping twice is stopping once.
func (n *Node) Stop() {
	n.b.t.Helper()
	if err := n.end(); err != nil {
		n.b.t.Errorf("stop node: %v", err)
	}
}

func (n *Node) end() error {
	if n.cancel == nil {
		return nil
	}
	n.cancel()
	n.cancel = nil
	select {
	case err := <-n.done:
		return err
	case <-time.After(patience):
		return errors.New("it did not stop")
	}
}

// OverTLS lets clients that connect from now on do so over TLS on TCP. The weather is not on it, nor is a cut.
func (n *Node) OverTLS() { n.scheme = "margay+tls://" }

var errDead = errors.New("the process is dead")

// Kill ends the node's process: nothing more leaves it, and what it wrote is there for the next one.
func (n *Node) Kill() {
	end := n.b.Network.Silence(NodeAddress()) // what it would do about its connections' end no dead process does
	// A flush may still happen: the kernel writes back what it has when it likes.
	n.faults.Add(&faultfs.Rule{
		Ops: []faultfs.Op{faultfs.Create, faultfs.Remove, faultfs.Rename, faultfs.MkdirAll, faultfs.WriteAt, faultfs.Truncate, faultfs.Preallocate},
		Err: errDead,
	})
	end()
	n.hangUp()
	_ = n.end()
	n.disk.DropLocks()
}

// PowerCut ends the node's process and leaves of its disk what a power cut at this moment would; what that is of the
// bytes that were not flushed is drawn from rng, none with nil.
func (n *Node) PowerCut(rng *rand.Rand) {
	end := n.b.Network.Silence(NodeAddress()) // first: what it said before is said about what is flushed by now
	n.hangUp()
	left := n.disk.Crash(rng)
	end()
	n.faults.Clear() // whoever still works on the old disk is not to be waited for longer than need be
	_ = n.end()
	n.disk = left
}

// hangUp ends the connections over TCP, which the node notices.
func (n *Node) hangUp() {
	n.b.Network.killListener(webAddress)
	n.b.Network.killListener(address)
}

// Disk is the node's disk, and Faults what can be done to it until the node starts again.
func (n *Node) Disk() *memfs.FS { return n.disk }

// Faults puts rules on the disk.
func (n *Node) Faults() *faultfs.FS { return n.faults }

// API is a client of the control plane.
func (n *Node) API() *control.Client {
	n.b.t.Helper()
	c, err := control.NewClient(control.ClientConfig{Address: n.info.HTTP, APIKey: n.info.Context.APIKey, Dial: n.b.Network.Dial})
	if err != nil {
		n.b.t.Fatal(err)
	}
	n.b.t.Cleanup(c.Close)
	return c
}

// Create creates a stream.
func (n *Node) Create(spec control.StreamSpec) {
	n.b.t.Helper()
	if _, err := n.API().CreateStream(n.b.t.Context(), control.DefaultTenant, control.DefaultNamespace, spec); err != nil {
		n.b.t.Fatalf("create stream: %v", err)
	}
}

// Connect connects a client on a host of its own, which the test's end closes. Its tokens are those of the control
// plane, 15 minutes each.
func (n *Node) Connect(opts ...client.Option) *client.Client {
	n.b.t.Helper()
	return n.ConnectFrom(n.b.Network.NewHost(), opts...)
}

// ConnectFrom connects a client on a host, of which a test can cut the path.
func (n *Node) ConnectFrom(at netip.Addr, opts ...client.Option) *client.Client {
	n.b.t.Helper()
	api := n.API()
	sockets := func(context.Context, string) (net.PacketConn, error) { return n.b.Network.ClientSocket(at), nil }
	streams := func(ctx context.Context, address string) (net.Conn, error) {
		return n.b.Network.Dial(ctx, "tcp", address)
	}
	tokens := func(ctx context.Context) (string, time.Time, error) {
		t, err := api.Exchange(ctx)
		return t.Token, t.ExpiresAt, err
	}
	own := []client.Option{
		client.WithCA([]byte(n.info.Context.CA)), client.WithTokenSource(tokens), client.WithPacketConn(sockets),
		client.WithTCPConn(streams),
		client.WithRand(n.b.Rand(fmt.Sprint("client", n.b.clients.Add(1)))), // two that drew alike would be one producer
	}
	ctx, cancel := context.WithTimeout(n.b.t.Context(), patience)
	defer cancel()
	c, err := client.Connect(ctx, n.scheme+address, append(own, opts...)...)
	if err != nil {
		n.b.t.Fatalf("connect: %v", err)
	}
	n.b.t.Cleanup(c.Close)
	return c
}
