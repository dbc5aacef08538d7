// SPDX-License-Identifier: Apache-2.0

// Command keys measures a cache of many keys: how long its node takes to open after a stop and after a kill, what its index
// holds in memory, how much disk endless overwrites take, and what reclaim and mass expiry do to puts; it starts the node
// itself, kills no other, and leaves nothing running and nothing behind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"margay.dev/bench/internal/build"
	"margay.dev/bench/internal/life"
	"margay.dev/bench/internal/systems"
	"margay.dev/cluster/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	keys, keySize, size int
	shards              int
	overwrites          float64
	rate                float64
	duration            time.Duration
	expiring            int
	data, binaries      string
	transport           string
	json, quick         bool
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("keys", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.IntVar(&o.keys, "keys", 1_000_000, "keys in the cache")
	fs.IntVar(&o.keySize, "key-size", 32, "bytes of a key")
	fs.IntVar(&o.size, "size", 128, "bytes of a value")
	fs.IntVar(&o.shards, "shards", 1, "shards of the cache")
	fs.Float64Var(&o.overwrites, "overwrites", 10, "how many times all keys are put again, in a random order")
	fs.Float64Var(&o.rate, "rate", 20_000, "puts a second while they are timed")
	fs.DurationVar(&o.duration, "duration", 10*time.Second, "how long they are timed")
	fs.IntVar(&o.expiring, "expiring", 200_000, "keys whose time to live ends at about one moment")
	fs.StringVar(&o.data, "data", "", "directory for the node's data, on the disk to measure (default bin)")
	fs.StringVar(&o.binaries, "binaries", "", "directory of a margay that is built (default: build one)")
	fs.StringVar(&o.transport, "transport", "quic", "quic or tls")
	fs.BoolVar(&o.json, "json", false, "print one object")
	fs.BoolVar(&o.quick, "quick", false, "few keys for a moment, to see that it works: its figures mean nothing")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.keys, o.expiring, o.rate, o.duration, o.overwrites = min(o.keys, 20_000), min(o.expiring, 4000), min(o.rate, 5000), time.Second, 3
	}
	if fs.NArg() > 0 || o.keys < 1 || o.expiring < 1 || o.expiring > o.keys || o.rate <= 0 || o.duration <= 0 || o.overwrites < 0 || o.shards < 1 ||
		o.transport != "quic" && o.transport != "tls" {
		return o, errors.New("want flags only, numbers above 0, no more expiring keys than keys, and quic or tls (-h lists them)")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if o.data == "" || o.binaries == "" {
		root, err := build.Root()
		if err != nil {
			return err
		}
		if o.data == "" {
			o.data = filepath.Join(root, "bin")
		}
		if o.binaries == "" {
			o.binaries = filepath.Join(root, "bin", "bench")
			if err := build.Ours(ctx, root, o.binaries, "margay"); err != nil {
				return err
			}
		}
	}
	dir, err := os.MkdirTemp(o.data, "keys-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m := &measurer{options: o, node: life.New(dir, o.transport, systems.Binaries(o.binaries).Margay(systems.Load{}).Serve(dir))}
	if !o.json {
		m.say = func(format string, args ...any) { _, _ = fmt.Fprintf(errOut, format+"\n", args...) } // progress: nobody depends on it
	}
	r, err := m.measure(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	return r.print(out)
}

// Result is what is printed.
type Result struct {
	System    string `json:"system"`
	Keys      int    `json:"keys"`
	KeySize   int    `json:"key_size"`
	ValueSize int    `json:"value_size"`
	Shards    int    `json:"shards"`
	// FillRate is puts a second of all keys, once.
	FillRate float64 `json:"fill_rate"`
	// Opening is in seconds, from the start of the process until a get is answered.
	OpenStopped float64 `json:"open_stopped_seconds"`
	OpenKilled  float64 `json:"open_killed_seconds"`
	// OpenEmpty is that of a node with an empty cache: what is not the keys'.
	OpenEmpty float64 `json:"open_empty_seconds"`
	// IndexBytes is by how much the node's live heap grew for each key, less the key's own bytes.
	IndexBytes float64 `json:"index_bytes_per_key"`
	// Live is the bytes of all keys and their values; DiskFilled, DiskMost and DiskEnd are of the log: once they are there, the most
	// while they were overwritten, and behind that.
	Live       int64   `json:"live_bytes"`
	DiskFilled int64   `json:"disk_filled_bytes"`
	DiskMost   int64   `json:"disk_most_bytes"`
	DiskEnd    int64   `json:"disk_end_bytes"`
	DiskRatio  float64 `json:"disk_ratio"` // most to live
	Overwrites float64 `json:"overwrites_rate"`
	// Calm, Reclaim and Expiry are of puts at a fixed rate, from when the schedule had them.
	Rate    float64         `json:"rate"`
	Calm    *load.Quantiles `json:"calm"`
	Reclaim *load.Quantiles `json:"reclaim"`
	Expiry  *load.Quantiles `json:"expiry"`
	// Reclaimed is how many bytes of the log went while Reclaim was timed; Expired how many keys did while Expiry was.
	Reclaimed int64 `json:"reclaimed_bytes"`
	Expired   int64 `json:"expired_keys"`
	// The 99th percentiles to that of Calm. ReclaimRatio is left out when nothing was reclaimed.
	ReclaimRatio float64 `json:"reclaim_p99_ratio,omitempty"`
	ExpiryRatio  float64 `json:"expiry_p99_ratio"`
}

func (r *Result) print(w io.Writer) error {
	reclaimed := "nothing was given back meanwhile"
	if r.Reclaimed > 0 {
		reclaimed = fmt.Sprintf("%.2fx at p99, %s given back meanwhile", r.ReclaimRatio, load.Bytes(r.Reclaimed))
	}
	line := func(q *load.Quantiles) string {
		return "p50 " + load.Span(q.P50) + "   p99 " + load.Span(q.P99) + "   max " + load.Span(q.Max)
	}
	_, err := fmt.Fprintf(w, `%s: %s keys of %d B with values of %d B, %d shard(s)
  filled      %s puts/s
  opening     %.2f s after a stop, %.2f s after a kill, %.2f s of a node without keys
  index       %.0f B per key beside the key
  disk        %s of keys and values; the log: %s filled, %s at most under overwrites (%.2fx), %s behind them
  overwrites  %s puts/s, in a random order
  puts        at %s/s, from when the schedule had them
    calm      %s
    reclaim   %s   %s
    expiry    %s   %.2fx at p99, %s keys expired meanwhile
`,
		r.System, load.Thousands(int64(r.Keys)), r.KeySize, r.ValueSize, r.Shards, load.Thousands(int64(r.FillRate)),
		r.OpenStopped, r.OpenKilled, r.OpenEmpty, r.IndexBytes,
		load.Bytes(r.Live), load.Bytes(r.DiskFilled), load.Bytes(r.DiskMost), r.DiskRatio, load.Bytes(r.DiskEnd), load.Thousands(int64(r.Overwrites)),
		load.Thousands(int64(r.Rate)), line(r.Calm), line(r.Reclaim), reclaimed,
		line(r.Expiry), r.ExpiryRatio, load.Thousands(r.Expired))
	return err
}
