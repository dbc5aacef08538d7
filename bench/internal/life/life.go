// SPDX-License-Identifier: Apache-2.0

// Package life takes a Margay node of its own through its lives: started, stopped and killed, on one directory that stays; it
// ends no process but the one that it started.
package life

import (
	"context"
	"path/filepath"
	"syscall"

	"margay.dev/bench/internal/child"
	"margay.dev/bench/internal/node"
	"margay.dev/client"
)

// Node is one that runs, or that did.
type Node struct {
	dir, transport string
	serve          child.Command

	server *child.Server
	// Node and Client are of the life that it is in, nil between two.
	*node.Node
	Client *client.Client
}

// New has serve start a node with its data in dir/data.
func New(dir, transport string, serve child.Command) *Node {
	return &Node{dir: dir, transport: transport, serve: serve}
}

// Data is the directory of the node's data.
func (n *Node) Data() string { return filepath.Join(n.dir, "data") }

// PID is the process that runs.
func (n *Node) PID() int { return n.server.PID }

// Start starts it, and connects to it.
func (n *Node) Start(ctx context.Context) (err error) {
	if n.server, err = child.Start(ctx, n.serve); err != nil {
		n.server = nil
		return err
	}
	if n.Node, err = node.Open(filepath.Join(n.Data(), "context.yaml")); err != nil {
		return err
	}
	n.Client, err = n.Connect(ctx, n.transport)
	return err
}

// Stop ends it in order, if it runs: nothing is left running.
func (n *Node) Stop() {
	if n.Client != nil {
		n.Client.Close()
	}
	if n.Node != nil {
		n.Close()
	}
	if n.server != nil {
		n.server.Stop()
	}
	n.Client, n.Node, n.server = nil, nil, nil
}

// Kill ends it as a power cut would, but for what the system still writes.
func (n *Node) Kill() error {
	err := syscall.Kill(n.server.PID, syscall.SIGKILL)
	n.Stop()
	return err
}
