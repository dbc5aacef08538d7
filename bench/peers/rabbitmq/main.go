// SPDX-License-Identifier: Apache-2.0

// Command rabbitmq is RabbitMQ as a peer: it runs the machine's rabbitmq-server with a directory of its own, or drives one
// quorum queue over the loopback, and measures nothing itself. It says so, with a code of its own, where RabbitMQ is not installed.
package main

import (
	"os"

	"margay.dev/bench/peers/peer"
)

func main() { os.Exit(peer.Main(self())) }

func self() peer.Peer {
	return peer.Peer{Name: "rabbitmq", Modes: []string{modeDefault}, Serve: serve, Drive: drive}
}
