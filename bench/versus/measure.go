// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"margay.dev/bench/internal/child"
	"margay.dev/bench/internal/node"
	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
	"margay.dev/cluster/load"
)

// cell is a cell of the table with what measures it.
type cell struct {
	table.Cell
	job systems.Job
	// value takes the value out of what the driver printed; extra adds more. What is needed of a node's metrics is in them.
	value func(out output) float64
	extra func(out output) map[string]float64
	// needs is the peer whose program has to be there; "" for none.
	needs string
}

// output is what a measurement left to look at.
type output struct {
	load.Result
	Idle idle
	// Storage and Bare are the two sides of the storage engine alone.
	Storage, Bare side
	// Numbers are what programs like bench/keys print, by name.
	Numbers map[string]float64
	// Metrics are the samples of a node after the run, by name; nil for others.
	Metrics map[string]float64
}

// idle is what drivers print that measure memory.
type idle struct {
	Bytes int64 `json:"bytes_per_connection"`
	RSS   int64 `json:"rss_bytes"`
}

type side struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// measurer measures cells, one at a time.
type measurer struct {
	root, binaries, data string
	env                  []string
	missing              map[string]string // peers that could not be built
	cells                map[string]cell
}

// measure measures a cell. What it says of a failure holds on any machine.
func (m *measurer) measure(ctx context.Context, id string) (rounds.Measured, error) {
	out, err := m.once(ctx, id)
	if err == nil {
		return out, nil
	}
	kind, text := err, err.Error()
	if errors.Is(err, rounds.ErrMissing) {
		kind, text = rounds.ErrMissing, strings.TrimSuffix(text, ": "+rounds.ErrMissing.Error()) // what is left says why
	}
	return out, &failure{kind: kind, text: readable(text, m.root, m.binaries, m.data)}
}

// failure is an error with its text made readable.
type failure struct {
	kind error
	text string
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.kind }

// failureBytes is how much of a failure's text a report can bear.
const failureBytes = 600

func readable(text, root, binaries, data string) string {
	for _, r := range [][2]string{{data, "DATA"}, {binaries, "bin/bench"}, {root, "."}, {"\n", "; "}} {
		if r[0] != "" {
			text = strings.ReplaceAll(text, r[0], r[1])
		}
	}
	if len(text) > failureBytes {
		text = text[:failureBytes] + "..."
	}
	return text
}

// once starts the server of a cell on a fresh directory, drives it, and leaves nothing of both.
func (m *measurer) once(ctx context.Context, id string) (out rounds.Measured, err error) {
	c := m.cells[id]
	if why := m.missing[c.needs]; why != "" {
		return out, fmt.Errorf("%s: %w", why, rounds.ErrMissing)
	}
	dir, err := os.MkdirTemp(m.data, "cell-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), settle(m.data)) }()
	var s *child.Server
	if c.job.Serve != nil {
		cmd := m.command(c.job.Serve(dir))
		out.Server = systems.Readable(cmd, m.root, m.binaries, dir)
		if s, err = child.Start(ctx, cmd); err != nil {
			if errors.Is(err, child.ErrUnavailable) {
				err = fmt.Errorf("%s: %w", strings.TrimSuffix(err.Error(), ": "+child.ErrUnavailable.Error()), rounds.ErrMissing)
			}
			return out, err
		}
		defer s.Stop()
	}
	cmd := m.command(c.job.Drive(dir, s))
	out.Command = systems.Readable(cmd, m.root, m.binaries, dir)
	printed, err := child.Run(ctx, cmd)
	if err != nil {
		if s != nil {
			err = fmt.Errorf("%w; the server said: %s", err, s.Log())
		}
		return out, err
	}
	o, err := read(printed)
	if err != nil {
		return out, fmt.Errorf("read what %s printed: %w", out.Command, err)
	}
	if o.Errors > 0 || o.Missing > 0 || o.Interrupted {
		return out, fmt.Errorf("%d messages failed, %d got no answer: %s", o.Errors, o.Missing, o.FirstError)
	}
	if c.job.Node {
		if o.Metrics, err = metrics(ctx, filepath.Join(dir, "data", "context.yaml")); err != nil {
			return out, err
		}
	}
	out.Raw, out.Version, out.Value, out.Extra = json.RawMessage(printed), o.System, o.Rate, extras(o)
	if c.value != nil {
		out.Value = c.value(o)
	}
	if c.extra != nil {
		maps.Copy(out.Extra, c.extra(o))
	}
	return out, nil
}

// read takes what a driver printed for each of the shapes that drivers print.
func read(printed []byte) (o output, err error) {
	var sides struct{ Storage, Bare side }
	err = errors.Join(json.Unmarshal(printed, &o.Result), json.Unmarshal(printed, &o.Idle))
	if err == nil && json.Unmarshal(printed, &sides) == nil {
		o.Storage, o.Bare = sides.Storage, sides.Bare
	}
	var all map[string]any
	if err == nil && json.Unmarshal(printed, &all) == nil {
		o.Numbers = map[string]float64{}
		for name, v := range all {
			if n, ok := v.(float64); ok {
				o.Numbers[name] = n
			}
		}
	}
	return o, err
}

func (m *measurer) command(c child.Command) child.Command {
	c.Env = append(append([]string{}, m.env...), c.Env...)
	return c
}

// extras are the values beside the main one that every driver reports.
func extras(o output) map[string]float64 {
	e := map[string]float64{}
	set := func(name string, v float64) {
		if v > 0 {
			e[name] = v
		}
	}
	if o.Latency != nil {
		set(table.P50, o.Latency.P50)
		set(table.P99, o.Latency.P99)
	}
	set(table.ClientCPU, o.ClientCPUPerMessage)
	if o.Server != nil {
		set(table.ServerCPU, o.Server.CPUPerMessage)
		set(table.ServerRSS, float64(o.Server.RSS))
	}
	return e
}

func metrics(ctx context.Context, contextFile string) (map[string]float64, error) {
	n, err := node.Open(contextFile)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return n.Metrics(ctx)
}
