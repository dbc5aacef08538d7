// SPDX-License-Identifier: Apache-2.0

// Package disk measures the storage engine alone against bare writes of the same bytes at the same places with the same
// flushes, in rounds that take turns, so that what the machine does meanwhile meets both; it writes only below the directory it is given, and refuses
// to leave anything there.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"margay.dev/cluster/load"
)

// Fsync is when a writer flushes.
type Fsync string

// The modes, as streams have them.
const (
	Always   Fsync = "always"   // behind each batch
	Interval Fsync = "interval" // behind the first batch that is later than FlushEvery after the last flush
	Never    Fsync = "never"    // not at all
)

// FlushEvery is the interval of Interval.
const FlushEvery = 100 * time.Millisecond

// maxRoundBytes ends a round before its time: without flushes a second can write more than a small disk has.
const maxRoundBytes = 1 << 30

// Spec says what to measure.
type Spec struct {
	Writers int   `json:"writers"` // each with a log, or a file, of its own
	Batch   int   `json:"batch_bytes"`
	Fsync   Fsync `json:"fsync"`
	// Rounds of each side, each as long as Duration.
	Rounds   int           `json:"rounds"`
	Duration time.Duration `json:"duration_ns"`
}

// Validate returns all faults.
func (s *Spec) Validate() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(s.Writers >= 1 && s.Writers <= 1024, "--writers %d: want 1 to 1024", s.Writers)
	must(s.Batch >= MinBatch && s.Batch <= MaxBatch, "--batch %d: want %d to %d", s.Batch, MinBatch, MaxBatch)
	must(slices.Contains([]Fsync{Always, Interval, Never}, s.Fsync), "--fsync %q: want always, interval or never", s.Fsync)
	must(s.Rounds >= 1 && s.Rounds <= 1000, "--rounds %d: want 1 to 1000", s.Rounds)
	must(s.Duration > 0, "--duration %v: want more than 0s", s.Duration)
	return errors.Join(errs...)
}

// Result is what the rounds showed. Its JSON is stable: fields are added, never renamed.
type Result struct {
	System string `json:"system"`
	Spec   Spec   `json:"spec"`
	// Storage is the engine, Bare are plain writes.
	Storage Side `json:"storage"`
	Bare    Side `json:"bare"`
	// Ratio is the median over the rounds of storage to bare, in bytes a second.
	Ratio float64 `json:"ratio"`
	// Ratios are those of the rounds, in order.
	Ratios      []float64 `json:"ratios"`
	Interrupted bool      `json:"interrupted,omitempty"`
}

// Side is one of the two: medians over its rounds, and the quantiles of all of its writes.
type Side struct {
	BytesPerSecond   float64         `json:"bytes_per_second"`
	BatchesPerSecond float64         `json:"batches_per_second"`
	CPUPerBatch      float64         `json:"cpu_us_per_batch"`
	Latency          *load.Quantiles `json:"latency"`
}

// log is what a writer writes to: a log of the engine, or a file.
type log interface {
	// append writes the next batch.
	append() error
	flush() error
	close() error
}

// side opens logs of one kind.
type side struct {
	name string
	open func(dir string, batch int) (log, error)
	h    *hdrhistogram.Histogram
	rate []float64 // bytes a second, by round
	cpu  []float64
}

// Run measures below dir. When ctx ends, it returns the rounds that were whole, marked as interrupted; an error when there is
// none. Progress is called before each round.
func Run(ctx context.Context, dir string, spec Spec, progress func(string)) (*Result, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	storage := &side{name: "storage", open: openStorage, h: load.NewHistogram()}
	bare := &side{name: "bare", open: openBare, h: load.NewHistogram()}
	res := &Result{System: "margay storage", Spec: spec}
	for round := range spec.Rounds {
		order := []*side{storage, bare}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			progress(fmt.Sprintf("round %d of %d: %s", round+1, spec.Rounds, s.name))
			if err := s.round(ctx, dir, spec); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if ctx.Err() != nil {
			res.Interrupted = true
			storage.keep(round)
			bare.keep(round)
			break
		}
		res.Ratios = append(res.Ratios, storage.rate[round]/bare.rate[round])
	}
	if len(res.Ratios) == 0 {
		return nil, fmt.Errorf("storage: interrupted before one round was whole: %w", context.Cause(ctx))
	}
	res.Storage, res.Bare, res.Ratio = storage.result(spec), bare.result(spec), median(res.Ratios)
	return res, nil
}

// keep forgets what a round that is not whole has added.
func (s *side) keep(rounds int) { s.rate, s.cpu = s.rate[:rounds], s.cpu[:rounds] }

func (s *side) result(spec Spec) Side {
	rate := median(s.rate)
	return Side{
		BytesPerSecond: rate, BatchesPerSecond: rate / float64(spec.Batch), CPUPerBatch: median(s.cpu),
		Latency: load.QuantilesOf(s.h, load.WriteDone),
	}
}

// round lets all writers write for a while.
func (s *side) round(ctx context.Context, parent string, spec Spec) (err error) {
	dir, err := os.MkdirTemp(parent, "margay-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	logs := make([]log, 0, spec.Writers)
	defer func() {
		for _, l := range logs {
			err = errors.Join(err, l.close())
		}
	}()
	for i := range spec.Writers {
		l, err := s.open(filepath.Join(dir, fmt.Sprint(i)), spec.Batch)
		if err != nil {
			return err
		}
		logs = append(logs, l)
	}
	ctx, cancel := context.WithTimeout(ctx, spec.Duration)
	defer cancel()
	var batches atomic.Int64
	errs, hs := make([]error, spec.Writers), make([]*hdrhistogram.Histogram, spec.Writers)
	most := max(1, maxRoundBytes/int64(spec.Batch)/int64(spec.Writers))
	var all sync.WaitGroup
	cpu, begin := load.OwnCPU(), time.Now()
	for i, l := range logs {
		hs[i] = load.NewHistogram()
		all.Go(func() {
			n, err := write(ctx, l, spec.Fsync, most, hs[i])
			batches.Add(n)
			errs[i] = err
		})
	}
	all.Wait()
	seconds := time.Since(begin).Seconds()
	n := float64(max(1, batches.Load()))
	s.rate, s.cpu = append(s.rate, n*float64(spec.Batch)/seconds), append(s.cpu, (load.OwnCPU()-cpu)*1e6/n)
	for _, h := range hs {
		s.h.Merge(h)
	}
	return errors.Join(errs...)
}

// write writes until ctx ends or most batches are written.
func write(ctx context.Context, l log, f Fsync, most int64, h *hdrhistogram.Histogram) (n int64, err error) {
	last := time.Now()
	for begin := last; n < most && ctx.Err() == nil; n++ {
		if err := l.append(); err != nil {
			return n, err
		}
		if f == Always || f == Interval && begin.Sub(last) >= FlushEvery {
			if err := l.flush(); err != nil {
				return n, err
			}
			last = begin
		}
		now := time.Now()
		_ = h.RecordValue(max(1, int64(now.Sub(begin)))) // it refuses only what lasts longer than a round
		begin = now
	}
	return n, nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
