// SPDX-License-Identifier: Apache-2.0

// Command nats is NATS as a peer: it serves an embedded nats-server with a JetStream store of its own, or drives one, each
// the way that is fastest for it, and measures nothing itself.
package main

import (
	"os"

	"margay.dev/bench/peers/peer"
)

func main() { os.Exit(peer.Main(self())) }

func self() peer.Peer {
	return peer.Peer{Name: "nats", Modes: []string{modeDefault, modeAlways}, TLS: true, Serve: serve, Drive: drive}
}
