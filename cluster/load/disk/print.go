// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"io"
	"strings"

	"margay.dev/cluster/load"
)

// Print writes a result for people.
func Print(w io.Writer, r *Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d writers, batches of %s, fsync %s, %d rounds of %v, taking turns with bare writes\n",
		r.System, r.Spec.Writers, load.Bytes(int64(r.Spec.Batch)), r.Spec.Fsync, len(r.Ratios), r.Spec.Duration)
	for _, s := range []struct {
		name string
		Side
	}{{"storage", r.Storage}, {"bare", r.Bare}} {
		fmt.Fprintf(&b, "  %-9s %s batches/s   %.1f MB/s   CPU %s per batch\n",
			s.name, load.Thousands(int64(s.BatchesPerSecond)), s.BytesPerSecond/1e6, load.Span(s.CPUPerBatch))
		if l := s.Latency; l != nil {
			fmt.Fprintf(&b, "            write p50 %s   p90 %s   p99 %s   p99.9 %s   max %s\n",
				load.Span(l.P50), load.Span(l.P90), load.Span(l.P99), load.Span(l.P999), load.Span(l.Max))
		}
	}
	fmt.Fprintf(&b, "  %-9s %.2f of bare, the median of", "ratio", r.Ratio)
	for _, x := range r.Ratios {
		fmt.Fprintf(&b, " %.2f", x)
	}
	b.WriteString("\n")
	if r.Interrupted {
		b.WriteString("  note      interrupted: these are the rounds that were whole by then\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
