// SPDX-License-Identifier: Apache-2.0

package raw

import (
	"context"
	"testing"
	"time"

	"margay.dev/bench/internal/transport"
)

// TestEveryWorkload runs each for a moment: what is counted has arrived.
func TestEveryWorkload(t *testing.T) {
	for _, kind := range []transport.Kind{transport.QUIC, transport.TLS} {
		t.Run(kind.String(), func(t *testing.T) {
			l, err := transport.Listen(t.Context(), kind, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, l) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			dial := func() transport.Conn {
				c, err := transport.Dial(t.Context(), kind, l.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			for _, down := range []bool{false, true} {
				m, err := OneWay(t.Context(), dial(), 4096, 20*time.Millisecond, down)
				if err != nil || m.Messages == 0 || m.Bytes != m.Messages*4096 {
					t.Errorf("one way, down %v: %+v, %v", down, m, err)
				}
			}
			for _, inFlight := range []int{1, 16} {
				m, err := PingPong(t.Context(), dial(), 256, inFlight, 20*time.Millisecond)
				if err != nil || m.Messages < int64(inFlight) || len(m.Latencies) != int(m.Messages) {
					t.Errorf("ping-pong of %d: %d messages, %v", inFlight, m.Messages, err)
				}
			}
			if err := Idle(t.Context(), dial()); err != nil {
				t.Error(err)
			}
			if n, err := ServerHolds(t.Context(), dial()); err != nil || n <= 0 {
				t.Errorf("the server holds %d bytes, %v", n, err)
			}
		})
	}
}
