// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	r := Result{
		System:   "margay",
		Spec:     Spec{Workload: Pub, Clients: 1, InFlight: 500, Size: 128, Shards: 4},
		Messages: 5_234_120, Seconds: 10, Rate: 523_412,
		Latency: &Quantiles{Of: AckSent, P50: 912.4, P90: 1500, P99: 20_000, P999: 1.5e6, Max: 2e6},
		Server:  &Server{CPUPerMessage: 0.8, RSS: 84 << 20}, ClientCPUPerMessage: 1.234,
	}
	const want = `margay: pub, 1 client of 500 in flight, 128 B, 4 shards
  rate      523,412/s   67.0 MB/s   5,234,120 acknowledged in 10.00 s
  latency   p50 912 µs   p90 1.50 ms   p99 20.0 ms   p99.9 1.50 s   max 2.00 s
            to the acknowledgement, from when the message was sent; what a stall held back does not show: see --rate
  CPU       server 800 ns, client 1.23 µs per message
  memory    server 84.0 MiB at most
`
	var b strings.Builder
	if err := Print(&b, &r); err != nil || b.String() != want {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, b.String(), want)
	}
	b.Reset()
	r.Server, r.Errors, r.Missing, r.Unsent, r.FirstError, r.Interrupted = nil, 1, 2000, 3, "storage full", true
	if err := Print(&b, &r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not a process that can be read", "errors    1\n", "missing   2,000", "unsent    3", "storage full", "interrupted"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}
