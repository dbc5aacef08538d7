// SPDX-License-Identifier: Apache-2.0

// Package rounds takes the cells of a table in turns, round after round, and throws away what was measured while the machine
// was not itself; it does not know what a cell is, and never keeps the better of two results.
package rounds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"margay.dev/bench/internal/probe"
	"margay.dev/bench/internal/table"
)

// ErrMissing is what a measurement fails with when its system is not here. The cell is left out, and that is said.
var ErrMissing = errors.New("not installed here")

// Measured is what one measurement of a cell showed.
type Measured struct {
	Value   float64
	Extra   map[string]float64
	Raw     json.RawMessage // what the driver printed
	Version string          // of the system, as the driver names it
	Command string          // that drove it
	Server  string          // that it ran against
}

// Record is a sample with all that is known of it.
type Record struct {
	table.Sample
	Raw    json.RawMessage `json:"result,omitempty"`
	Before probe.Reading   `json:"probe_before"`
	After  probe.Reading   `json:"probe_after"`
	Tries  int             `json:"tries"`
}

// Fault is a measurement that failed.
type Fault struct {
	Cell  string `json:"cell"`
	Round int    `json:"round"`
	Why   string `json:"why"`
}

// About is what a cell was measured with.
type About struct {
	Version string `json:"version,omitempty"`
	Command string `json:"command,omitempty"`
	Server  string `json:"server,omitempty"`
}

// Log is all that a run has seen.
type Log struct {
	Records []Record          `json:"records"`
	About   map[string]About  `json:"about"`             // by cell
	Missing map[string]string `json:"missing,omitempty"` // by cell: why it was left out
	Faults  []Fault           `json:"faults,omitempty"`
	// Discarded counts measurements thrown away because of a storm, Stormy those kept although there was one.
	Discarded int `json:"discarded"`
	Stormy    int `json:"stormy"`
	// Waited is how long the run stood still for storms to pass.
	Waited time.Duration `json:"waited_ns"`
}

// Samples are the records' samples.
func (l *Log) Samples() table.Samples {
	s := make(table.Samples, len(l.Records))
	for i, r := range l.Records {
		s[i] = r.Sample
	}
	return s
}

// Options of a run. All fields are needed.
type Options struct {
	Rounds  int
	Measure func(ctx context.Context, cell string) (Measured, error)
	Probe   func() (probe.Reading, error)
	// Wait waits for a moment.
	Wait func(ctx context.Context, d time.Duration) error
	// Say shows what goes on.
	Say func(format string, args ...any)
}

const (
	// Tries is how often a cell is measured in one round at most.
	Tries = 3
	// shareRepeated bounds how many measurements of a run may be repeats: a machine that storms all the time is measured
	// all the same, once, and the report says so.
	shareRepeated = 0.25
	// patience is how often the probe is repeated before a cell, waitBetween how long it waits each time.
	patience    = 8
	waitBetween = 500 * time.Millisecond
	// firstReadings is how many are taken before anything is measured.
	firstReadings = 7
	// maxFaults is how often a cell may fail before it is left out.
	maxFaults = 2
)

type run struct {
	Options
	log     Log
	judge   probe.Judge
	faults  map[string]int
	repeats int // left
}

// Run measures every cell of every row once in each round. It returns what there is, also with an error, which is ctx's or the
// probe's.
func Run(ctx context.Context, rows []table.Row, o Options) (*Log, error) {
	r := &run{Options: o, faults: map[string]int{}}
	r.log.About, r.log.Missing = map[string]About{}, map[string]string{}
	cells := 0
	for _, row := range rows {
		cells += len(row.Cells) * r.roundsOf(row)
	}
	r.repeats = max(1, int(float64(cells)*shareRepeated))
	for range firstReadings { // what is usual, before anything runs
		p, err := o.Probe()
		if err != nil {
			return &r.log, err
		}
		r.judge.Add(p)
	}
	for round := range o.Rounds {
		for _, row := range rows {
			if round >= r.roundsOf(row) {
				continue
			}
			for _, i := range table.Order(len(row.Cells), round) {
				if err := r.cell(ctx, row.Cells[i], round); err != nil {
					return &r.log, err
				}
			}
		}
	}
	return &r.log, nil
}

func (r *run) roundsOf(row table.Row) int {
	if row.Rounds > 0 {
		return min(row.Rounds, r.Rounds)
	}
	return r.Rounds
}

// cell measures a cell until the machine is quiet around it, or it has been tried often enough.
func (r *run) cell(ctx context.Context, c table.Cell, round int) error {
	if r.log.Missing[c.ID] != "" {
		return nil
	}
	for try := 1; ; try++ {
		before, err := r.quiet(ctx)
		if err != nil {
			return err
		}
		m, err := r.Measure(ctx, c.ID)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failed(c, round, err)
			return nil
		}
		after, err := r.Probe()
		if err != nil {
			return err
		}
		stormy := r.judge.Stormy(before) || r.judge.Stormy(after)
		off := max(r.judge.Off(before), r.judge.Off(after))
		r.judge.Add(after)
		if stormy && try < Tries && r.repeats > 0 {
			r.repeats--
			r.log.Discarded++
			r.Say("  %-40s discarded: the machine is %.1f times slower than usual", c.ID, off)
			continue
		}
		if stormy {
			r.log.Stormy++
		}
		s := table.Sample{Cell: c.ID, Round: round, Value: m.Value, Extra: m.Extra, Stormy: stormy}
		r.log.Records = append(r.log.Records, Record{Sample: s, Raw: m.Raw, Before: before, After: after, Tries: try})
		r.log.About[c.ID] = About{m.Version, m.Command, m.Server}
		r.Say("  %-40s %s", c.ID, table.Format(m.Value, c.Unit))
		return nil
	}
}

// quiet waits, for a while, until the machine is as usual.
func (r *run) quiet(ctx context.Context) (p probe.Reading, err error) {
	for range patience {
		if p, err = r.Probe(); err != nil || !r.judge.Stormy(p) {
			break
		}
		r.log.Waited += waitBetween
		if err := r.Wait(ctx, waitBetween); err != nil {
			return p, err
		}
	}
	return p, err
}

func (r *run) failed(c table.Cell, round int, err error) {
	if errors.Is(err, ErrMissing) {
		r.log.Missing[c.ID] = err.Error()
		r.Say("  %-40s left out: %v", c.ID, err)
		return
	}
	r.log.Faults = append(r.log.Faults, Fault{c.ID, round, err.Error()})
	r.Say("  %-40s failed: %v", c.ID, err)
	if r.faults[c.ID]++; r.faults[c.ID] >= maxFaults {
		r.log.Missing[c.ID] = fmt.Sprintf("failed %d times, at last: %v", maxFaults, err)
	}
}
