// SPDX-License-Identifier: Apache-2.0

package rounds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"margay.dev/bench/internal/probe"
	"margay.dev/bench/internal/table"
)

// machine is a machine that storms when the test says so. Nothing in it takes time.
type machine struct {
	stormy   func(measured int) bool // by how many measurements there have been
	measured []string
	fail     map[string]error
	waited   int
}

func (m *machine) options(rounds int) Options {
	return Options{
		Rounds: rounds,
		Measure: func(_ context.Context, cell string) (Measured, error) {
			m.measured = append(m.measured, cell)
			return Measured{Value: float64(len(m.measured))}, m.fail[cell]
		},
		Probe: func() (probe.Reading, error) {
			r := probe.Reading{CPU: 100, Flush: 100, Ping: 100}
			if m.stormy != nil && m.stormy(len(m.measured)) {
				r.Flush = 1000
			}
			return r, nil
		},
		Wait: func(ctx context.Context, _ time.Duration) error {
			m.waited++
			return ctx.Err()
		},
		Say: func(string, ...any) {},
	}
}

func row(id string, cells ...string) table.Row {
	r := table.Row{ID: id}
	for _, c := range cells {
		r.Cells = append(r.Cells, table.Cell{ID: c})
	}
	return r
}

func TestCellsTakeTurns(t *testing.T) {
	m := &machine{}
	once := row("once", "o")
	once.Rounds = 1
	l, err := Run(t.Context(), []table.Row{row("one", "a", "b", "c"), once, row("two", "x")}, m.options(3))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "b", "c", "o", "x", "b", "c", "a", "x", "c", "a", "b", "x"}
	if !slices.Equal(m.measured, want) {
		t.Errorf("measured %v, want %v", m.measured, want)
	}
	if len(l.Records) != len(want) || l.Discarded != 0 || l.Stormy != 0 {
		t.Errorf("%d records, %d discarded, %d stormy", len(l.Records), l.Discarded, l.Stormy)
	}
}

func TestWhatAStormTouchesIsMeasuredAgain(t *testing.T) {
	m := &machine{stormy: func(measured int) bool { return measured == 2 }} // from the second measurement to the third
	l, err := Run(t.Context(), []table.Row{row("one", "a", "b", "c", "d", "e", "f", "g", "h")}, m.options(1))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.measured[:4], []string{"a", "b", "b", "b"}) { // after the second, and before the third
		t.Errorf("measured %v", m.measured)
	}
	if l.Discarded != 2 || l.Stormy != 0 || m.waited == 0 {
		t.Errorf("%d discarded, %d stormy, waited %d times", l.Discarded, l.Stormy, m.waited)
	}
	if got := l.Samples().Values(table.Operand{Cell: "b"}); !slices.Equal(got, []float64{4}) {
		t.Errorf("kept %v: what was discarded counts for nothing", got)
	}
}

func TestAMachineThatOnlyStormsIsMeasuredAllTheSame(t *testing.T) {
	flip := false
	m := &machine{stormy: func(measured int) bool {
		flip = !flip
		return measured > 0 && flip // never long enough to become the usual
	}}
	var cells []string
	for i := range 40 {
		cells = append(cells, fmt.Sprint(i))
	}
	l, err := Run(t.Context(), []table.Row{row("one", cells...)}, m.options(1))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Records) != len(cells) || l.Discarded == 0 || l.Stormy == 0 || l.Discarded > len(cells)/4 {
		t.Errorf("%d records, %d discarded, %d kept although stormy", len(l.Records), l.Discarded, l.Stormy)
	}
	for _, r := range l.Records {
		if r.Tries > Tries {
			t.Errorf("%s: %d tries", r.Cell, r.Tries)
		}
	}
}

func TestWhatIsMissingIsSaidAndLeftOut(t *testing.T) {
	m := &machine{fail: map[string]error{"gone": fmt.Errorf("redis-server: %w", ErrMissing), "broken": errors.New("no answer")}}
	l, err := Run(t.Context(), []table.Row{row("one", "a", "gone", "broken")}, m.options(4))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, c := range m.measured {
		count[c]++
	}
	if count["a"] != 4 || count["gone"] != 1 || count["broken"] != maxFaults {
		t.Errorf("measured %v", count)
	}
	if l.Missing["gone"] == "" || l.Missing["broken"] == "" || len(l.Faults) != maxFaults || len(l.Records) != 4 {
		t.Errorf("missing %v, faults %v", l.Missing, l.Faults)
	}
}

func TestAnInterruptedRunReturnsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &machine{}
	o := m.options(3)
	measure := o.Measure
	o.Measure = func(ctx context.Context, cell string) (Measured, error) {
		if cell == "b" {
			cancel()
			return Measured{}, ctx.Err()
		}
		return measure(ctx, cell)
	}
	l, err := Run(ctx, []table.Row{row("one", "a", "b", "c")}, o)
	if !errors.Is(err, context.Canceled) || len(l.Records) != 1 || len(l.Faults) != 0 {
		t.Errorf("%v, %+v", err, l)
	}
}
