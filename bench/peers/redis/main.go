// SPDX-License-Identifier: Apache-2.0

// Command redis is Redis as a peer: it runs the machine's redis-server with a directory of its own, or drives one with
// commands for one stream, and measures nothing itself. It says so, with a code of its own, where no redis-server is
// installed.
package main

import (
	"os"

	"margay.dev/bench/peers/peer"
)

func main() { os.Exit(peer.Main(self())) }

func self() peer.Peer {
	return peer.Peer{Name: "redis", Modes: []string{modeDefault, modeAlways, modeNo}, Serve: serve, Drive: drive}
}
