// SPDX-License-Identifier: Apache-2.0

// Package serve is what the servers of a measurement have in common: they say where they listen, and end with their input;
// it starts nothing itself.
package serve

import (
	"context"
	"encoding/json"
	"io"
	"os"
)

// Announce prints the line that says where the server listens.
func Announce(out io.Writer, addr string) error {
	return json.NewEncoder(out).Encode(map[string]any{"addr": addr, "pid": os.Getpid()})
}

// UntilEnd ends the context when in does, which whoever started the process holds open: it ends with that one.
func UntilEnd(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}() // it ends with in, at the latest with the process
	return ctx, cancel
}
