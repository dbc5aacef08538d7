// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
)

// BenchmarkConsume takes messages of 100 bytes and acks them without waiting.
func BenchmarkConsume(b *testing.B) {
	br := fakebroker.New(b)
	l := br.AddLog(stream, 1)
	vals := make([]string, 1000)
	for i := range vals {
		vals[i] = value(i) + string(make([]byte, 93))
	}
	for range (b.N + len(vals) - 1) / len(vals) {
		br.Feed(l, 0, vals...)
	}
	g := consume(b, connect(b, br).Queue("orders"), client.MaxInFlight(10_000))
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for m, err := range g.Messages(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		m.AckAsync()
		if n++; n == b.N {
			break
		}
	}
	if err := g.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
