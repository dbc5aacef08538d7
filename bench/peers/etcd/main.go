// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd as a peer: it serves an embedded etcd of one member, flushing as it does by default, or drives one
// with puts and watches, and measures nothing itself.
package main

import (
	"os"

	"margay.dev/bench/peers/peer"
)

func main() { os.Exit(peer.Main(self())) }

func self() peer.Peer {
	return peer.Peer{Name: "etcd", Modes: []string{modeAlways}, Serve: serve, Drive: drive}
}
