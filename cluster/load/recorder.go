// SPDX-License-Identifier: Apache-2.0

package load

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// maxLatency is the highest that is told apart: ten minutes in nanoseconds.
	maxLatency = int64(600e9)
	// digits that a latency keeps.
	digits = 3
	// maxRecorders bounds the memory: a histogram takes a quarter of a megabyte.
	maxRecorders = 16
)

// recorder is a histogram for several goroutines.
type recorder struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// recorders are shared by all who record, so that few meet at one lock.
type recorders []*recorder

func newRecorders(users int) recorders {
	rs := make(recorders, min(max(users, 1), maxRecorders))
	for i := range rs {
		rs[i] = &recorder{h: NewHistogram()}
	}
	return rs
}

func (rs recorders) of(i int) *recorder { return rs[i%len(rs)] }

func (r *recorder) record(ns int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.h.RecordValues(min(max(ns, 1), maxLatency), int64(n)) // it refuses only what is out of range
}

func (rs recorders) reset() {
	for _, r := range rs {
		r.mu.Lock()
		r.h.Reset()
		r.mu.Unlock()
	}
}

// quantiles returns nil when nothing was recorded.
func (rs recorders) quantiles(of LatencyOf) *Quantiles {
	all := NewHistogram()
	for _, r := range rs {
		r.mu.Lock()
		all.Merge(r.h)
		r.mu.Unlock()
	}
	return QuantilesOf(all, of)
}

// QuantilesOf returns the quantiles of a histogram of nanoseconds, nil for an empty one.
func QuantilesOf(h *hdrhistogram.Histogram, of LatencyOf) *Quantiles {
	if h.TotalCount() == 0 {
		return nil
	}
	us := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) / 1e3 }
	return &Quantiles{
		Of: of, P50: us(50), P90: us(90), P99: us(99), P999: us(99.9), Max: float64(h.Max()) / 1e3,
	}
}

// NewHistogram makes one of nanoseconds up to ten minutes, with three digits. It is for one goroutine.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, digits) }
