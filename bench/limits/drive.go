// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"margay.dev/bench/internal/disk"
	"margay.dev/bench/internal/proc"
	"margay.dev/bench/internal/raw"
	"margay.dev/bench/internal/transport"
	"margay.dev/cluster/load"
)

// driving is what `limits drive` is told.
type driving struct {
	kind             transport.Kind
	addr, workload   string
	size, inFlight   int
	connections      int
	duration, warmup time.Duration
	pid              int
}

func drive(ctx context.Context, args []string, out io.Writer) error {
	var o driving
	fs := flag.NewFlagSet("drive", flag.ContinueOnError)
	name := fs.String("transport", "quic", "quic or tls")
	fs.StringVar(&o.addr, "addr", "", "address of the server")
	fs.StringVar(&o.workload, "workload", "upload", "upload, download, pingpong or idle")
	fs.IntVar(&o.size, "size", 4096, "bytes of a write, or of a message")
	fs.IntVar(&o.inFlight, "in-flight", 1, "with pingpong: messages without an answer")
	fs.IntVar(&o.connections, "connections", 500, "with idle: how many")
	fs.DurationVar(&o.duration, "duration", 2*time.Second, "how long to measure")
	fs.DurationVar(&o.warmup, "warmup", 300*time.Millisecond, "how long to do the same before")
	fs.IntVar(&o.pid, "pid", 0, "process of the server, to account for its CPU time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if o.kind, err = transport.Parse(*name); err != nil {
		return err
	}
	if o.addr == "" || o.size < 1 || o.inFlight < 1 || o.connections < 1 || o.duration <= 0 {
		return errors.New("want --addr, and numbers above 0")
	}
	if o.workload == "idle" {
		return idle(ctx, o, out)
	}
	if o.warmup > 0 {
		if _, err := o.once(ctx, o.warmup); err != nil {
			return err
		}
	}
	ours, theirs := proc.CPU(0), proc.CPU(o.pid)
	m, err := o.once(ctx, o.duration)
	if err != nil {
		return err
	}
	r := result(m.Messages, m.Bytes, m.Took, m.Latencies)
	r.System = "raw " + o.kind.String()
	r.Spec.Workload, r.Spec.Size, r.Spec.InFlight, r.Spec.Duration = load.Workload(o.workload), o.size, o.inFlight, o.duration
	account(r, proc.CPU(0)-ours, proc.CPU(o.pid)-theirs, o.pid)
	return printJSON(out, r)
}

// once measures over a connection of its own.
func (o driving) once(ctx context.Context, d time.Duration) (raw.Measured, error) {
	c, err := transport.Dial(ctx, o.kind, o.addr)
	if err != nil {
		return raw.Measured{}, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	switch o.workload {
	case "upload", "download":
		return raw.OneWay(ctx, c, o.size, d, o.workload == "download")
	case "pingpong":
		return raw.PingPong(ctx, c, o.size, o.inFlight, d)
	}
	return raw.Measured{}, fmt.Errorf("workload %q: want upload, download, pingpong or idle", o.workload)
}

// idle opens connections with a stream each, and reports what one of them costs the server.
func idle(ctx context.Context, o driving, out io.Writer) error {
	ask, err := transport.Dial(ctx, o.kind, o.addr)
	if err != nil {
		return err
	}
	defer func() { _ = ask.Close() }()
	holds := func() (int64, error) {
		if o.kind == transport.QUIC {
			return raw.ServerHolds(ctx, ask)
		}
		c, err := transport.Dial(ctx, o.kind, o.addr) // a connection of TLS carries one question
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close() }()
		return raw.ServerHolds(ctx, c)
	}
	before, err := holds()
	if err != nil {
		return err
	}
	var open []transport.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	rss := proc.RSS(o.pid)
	for range o.connections {
		c, err := transport.Dial(ctx, o.kind, o.addr)
		if err != nil {
			return err
		}
		open = append(open, c)
		if err := raw.Idle(ctx, c); err != nil {
			return err
		}
	}
	after, err := holds()
	if err != nil {
		return err
	}
	r := Idle{System: "raw " + o.kind.String(), Connections: o.connections, BytesPerConnection: (after - before) / int64(o.connections)}
	if o.pid != 0 {
		r.RSSPerConnection = (proc.RSS(o.pid) - rss) / int64(o.connections)
	}
	return printJSON(out, r)
}

// Idle is what `--workload idle` prints.
type Idle struct {
	System      string `json:"system"`
	Connections int    `json:"connections"`
	// BytesPerConnection is live heap and stacks after a collection; RSSPerConnection what the process grew by, garbage too.
	BytesPerConnection int64 `json:"bytes_per_connection"`
	RSSPerConnection   int64 `json:"rss_per_connection"`
}

func onDisk(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("disk", flag.ContinueOnError)
	dir := fs.String("dir", "", "directory to write to, on the file system to measure; what is written is removed")
	workload := fs.String("workload", "flush", "flush or sequential")
	size := fs.Int("size", 4096, "bytes of an append")
	writers := fs.Int("writers", 1, "with flush: writers, with a file each")
	zeroed := fs.Bool("zeroed", false, "with flush: into space that zeros were written to, as Margay does")
	duration := fs.Duration("duration", 2*time.Second, "how long to measure")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *size < 1 || *writers < 1 {
		return errors.New("want --dir, and numbers above 0")
	}
	tmp, err := os.MkdirTemp(*dir, "limits-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	cpu := proc.CPU(0)
	var m disk.Measured
	switch *workload {
	case "flush":
		m, err = disk.Flushed(ctx, tmp, *writers, *size, *zeroed, *duration)
	case "sequential":
		m, err = disk.Sequential(ctx, tmp, *size, *duration)
	default:
		err = fmt.Errorf("workload %q: want flush or sequential", *workload)
	}
	if err != nil {
		return err
	}
	r := result(m.Appends, m.Bytes, m.Took, m.Flushes)
	r.System, r.Spec.Workload, r.Spec.Size, r.Spec.Clients, r.Spec.Duration = "file system", load.Workload(*workload), *size, *writers, *duration
	account(r, proc.CPU(0)-cpu, 0, 0)
	return printJSON(out, r)
}

func result(messages, bytes int64, took time.Duration, sorted []time.Duration) *load.Result {
	r := &load.Result{Messages: messages, Bytes: bytes, Seconds: took.Seconds(), Rate: float64(messages) / took.Seconds()}
	if len(sorted) > 0 {
		at := func(q float64) float64 {
			return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / float64(time.Microsecond)
		}
		r.Latency = &load.Quantiles{Of: load.AckSent, P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: at(1)}
	}
	return r
}

// account says what the CPU time comes to per message.
func account(r *load.Result, client, server time.Duration, pid int) {
	per := func(d time.Duration) float64 {
		return float64(d) / float64(time.Microsecond) / float64(max(r.Messages, 1))
	}
	r.ClientCPU, r.ClientCPUPerMessage = client.Seconds(), per(client)
	if pid != 0 {
		r.Server = &load.Server{PID: pid, CPU: server.Seconds(), CPUPerMessage: per(server), RSS: proc.RSS(pid)}
	}
}
