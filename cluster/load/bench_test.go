// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"io"
	"testing"
	"time"
)

// null is a system that answers at once: all that is left is the generator.
type null struct{ each func([]byte) }

type nullPublisher struct {
	n    *null
	done Done
}

func (n *null) Publisher(_ context.Context, _ int, done Done) (Publisher, error) {
	return &nullPublisher{n: n, done: done}, nil
}

func (n *null) Subscribe(_ context.Context, s Subscription) (io.Closer, error) {
	n.each = s.Each
	return io.NopCloser(nil), nil
}

func (*null) Close() error { return nil }

func (p *nullPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	if p.n.each != nil {
		p.n.each(msg)
	}
	p.done(at, 1, nil)
	return nil
}

func (*nullPublisher) Close() error { return nil }

// What the generator itself costs for each message: it must be far from what any system costs.
func BenchmarkGenerator(b *testing.B) {
	for name, spec := range map[string]Spec{
		"pub":    {Workload: Pub, Messages: 1_000_000},
		"rate":   {Workload: Latency, Messages: 1_000_000, Rate: 1e8},
		"fanout": {Workload: Fanout, Messages: 1_000_000},
	} {
		b.Run(name, func(b *testing.B) {
			var total time.Duration
			for b.Loop() {
				r, err := Run(b.Context(), &null{}, spec, Options{})
				if err != nil {
					b.Fatal(err)
				}
				total += time.Duration(r.Seconds * 1e9)
			}
			b.ReportMetric(float64(total)/float64(b.N)/1e6, "ns/message")
			b.ReportMetric(0, "ns/op")
		})
	}
}
