// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
)

// The numbers include the fake broker, which shares the process.

func BenchmarkPublishSync(b *testing.B) {
	broker := fakebroker.New(b)
	broker.AddLog(stream, 1)
	p := connect(b, broker).Publisher("orders")
	rec := client.Record{Value: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Publish(context.Background(), rec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublishParallel64(b *testing.B) {
	broker := fakebroker.New(b)
	broker.AddLog(stream, 1)
	p := connect(b, broker).Publisher("orders")
	rec := client.Record{Value: make([]byte, 128)}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.Publish(context.Background(), rec); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkPublishAsync(b *testing.B) {
	broker := fakebroker.New(b)
	broker.AddLog(stream, 1)
	p := connect(b, broker).Publisher("orders")
	rec := client.Record{Value: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		p.PublishAsync(context.Background(), rec)
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkSubscribe(b *testing.B) {
	broker := fakebroker.New(b)
	l := broker.AddLog(stream, 1)
	vs := make([]string, 100)
	for i := range vs {
		vs[i] = string(make([]byte, 128))
	}
	for range (b.N + 99) / 100 {
		broker.Feed(l, 0, vs...)
	}
	s, err := connect(b, broker).Subscribe(context.Background(), "orders", client.FromEarliest())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for _, err := range s.Records(context.Background()) {
		if err != nil {
			b.Fatal(err)
		}
		if n++; n >= b.N {
			break
		}
	}
}
