// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"margay.dev/bench/internal/life"
	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/cluster/load/margay"
)

const (
	// openWithin bounds an opening: one that takes longer is a failure, not a figure.
	openWithin = 2 * time.Minute
	// window is how many puts are under way that are not timed.
	window = 5000
	// lookEach is how often the log's size is looked at while it is overwritten.
	lookEach = 200 * time.Millisecond
	cache    = "keys"
)

// measurer measures one node through its lives.
type measurer struct {
	options
	node *life.Node
	say  func(format string, args ...any)
	r    Result
}

func (m *measurer) measure(ctx context.Context) (*Result, error) {
	if m.say == nil {
		m.say = func(string, ...any) {}
	}
	defer m.node.Stop()
	m.r = Result{
		System: "margay, fsync always, " + m.transport, Keys: m.keys, KeySize: m.keySize, ValueSize: m.size, Shards: m.shards, Rate: m.rate,
		Live: int64(m.keys) * int64(m.keySize+m.size),
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"starting a node", m.begin},
		{"putting all keys once", m.fill},
		{"opening after a stop", m.stopped},
		{"timing puts while nothing is to be reclaimed", m.calm},
		{"overwriting", m.overwrite},
		{"timing puts during reclaim", m.reclaim},
		{"opening after a kill", m.killed},
		{"timing puts during mass expiry", m.expire},
	} {
		m.say("%s", step.what)
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	r := m.r
	r.DiskRatio = float64(r.DiskMost) / float64(r.Live)
	r.ExpiryRatio = r.Expiry.P99 / r.Calm.P99
	if r.Reclaimed > 0 {
		r.ReclaimRatio = r.Reclaim.P99 / r.Calm.P99
	}
	return &r, nil
}

// begin starts the first node, and the second, which has nothing to open but an empty cache.
func (m *measurer) begin(ctx context.Context) error {
	if err := m.node.Start(ctx); err != nil {
		return err
	}
	if err := m.node.Cache(ctx, cache, m.shards); err != nil {
		return err
	}
	m.node.Stop()
	took, err := m.open(ctx, 0)
	m.r.OpenEmpty = took.Seconds()
	return err
}

// open starts the node and times it from there until a get is answered; of this many keys it must know all.
func (m *measurer) open(ctx context.Context, keys int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	begin := time.Now()
	if err := m.node.Start(ctx); err != nil {
		return 0, err
	}
	k := m.node.Client.Cache(cache)
	for {
		_, err := k.Get(ctx, load.Key(0, m.keySize))
		if err == nil || keys == 0 && errors.Is(err, client.ErrNotFound) {
			break
		}
		if ctx.Err() != nil || errors.Is(err, client.ErrNotFound) {
			return 0, err
		}
	}
	took := time.Since(begin)
	n, err := k.Count(ctx)
	if err == nil && n != uint64(keys) {
		err = fmt.Errorf("%d keys are there: want %d", n, keys)
	}
	return took, err
}

// run puts on the cache.
func (m *measurer) run(ctx context.Context, spec load.Spec, ttl time.Duration) (*load.Result, error) {
	spec.Workload, spec.KeySize, spec.Size = load.Put, m.keySize, m.size
	spec.Fill()
	where := m.node.Load(m.transport)
	where.Stream, where.TTL = cache, ttl
	sys, err := margay.OpenCache(ctx, where, &spec)
	if err != nil {
		return nil, err
	}
	r, err := load.Run(ctx, load.Keyed(sys), spec, load.Options{ServerPID: m.node.PID()})
	if err = errors.Join(err, sys.Close()); err != nil {
		return nil, err
	}
	switch {
	case r.Interrupted:
		return nil, context.Cause(ctx)
	case r.Errors > 0 || r.Missing > 0:
		return nil, fmt.Errorf("%d puts failed, %d got no answer: %s", r.Errors, r.Missing, r.FirstError)
	}
	return r, nil
}

// timed puts random keys at the fixed rate.
func (m *measurer) timed(ctx context.Context) (*load.Result, error) {
	r, err := m.run(ctx, load.Spec{
		Keys: m.keys, Random: true, InFlight: window, Rate: m.rate, Duration: m.duration, Warmup: time.Second,
	}, 0)
	if err == nil && r.Unsent > 0 {
		err = fmt.Errorf("%d puts were not sent in time: this machine does not keep up with -rate %.0f", r.Unsent, m.rate)
	}
	return r, err
}

func (m *measurer) fill(ctx context.Context) error {
	before, err := m.node.Held(ctx)
	if err != nil {
		return err
	}
	r, err := m.run(ctx, load.Spec{Keys: m.keys, Messages: int64(m.keys), InFlight: window}, 0)
	if err != nil {
		return err
	}
	m.r.FillRate = r.Rate
	after, err := m.node.Held(ctx)
	if err != nil {
		return err
	}
	m.r.IndexBytes = float64(after-before)/float64(m.keys) - float64(m.keySize)
	m.r.DiskFilled, err = m.disk()
	return err
}

func (m *measurer) calm(ctx context.Context) error {
	r, err := m.timed(ctx)
	if err == nil {
		m.r.Calm = r.Latency
	}
	return err
}

func (m *measurer) stopped(ctx context.Context) error {
	m.node.Stop()
	took, err := m.open(ctx, m.keys)
	m.r.OpenStopped = took.Seconds()
	return err
}

func (m *measurer) killed(ctx context.Context) error {
	if err := m.node.Kill(); err != nil {
		return err
	}
	took, err := m.open(ctx, m.keys)
	m.r.OpenKilled = took.Seconds()
	return err
}

// overwrite puts all keys again and again, and watches the disk.
func (m *measurer) overwrite(ctx context.Context) error {
	quit := make(chan struct{})
	var looking sync.WaitGroup
	var most int64
	var failed error
	looking.Go(func() {
		tick := time.NewTicker(lookEach)
		defer tick.Stop()
		for {
			n, err := m.disk()
			most, failed = max(most, n), errors.Join(failed, err)
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
	r, err := m.run(ctx, load.Spec{Keys: m.keys, Random: true, Messages: max(1, int64(m.overwrites*float64(m.keys))), InFlight: window}, 0)
	close(quit)
	looking.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	m.r.Overwrites = r.Rate
	if m.r.DiskEnd, err = m.disk(); err != nil {
		return err
	}
	m.r.DiskMost = max(most, m.r.DiskEnd)
	return nil
}

// reclaim times puts once the log is as full as it gets, so that what they add has to go elsewhere.
func (m *measurer) reclaim(ctx context.Context) error {
	before, err := m.disk()
	if err != nil {
		return err
	}
	r, err := m.timed(ctx)
	if err != nil {
		return err
	}
	after, err := m.disk()
	if err != nil {
		return err
	}
	m.r.Reclaim = r.Latency
	// What the puts have added at the least, the ones before the measurement not counted.
	m.r.Reclaimed = max(0, before+r.Messages*int64(m.keySize+m.size)-after)
	return nil
}

// expire times puts while keys expire that were put with a time to live that ends in the middle.
func (m *measurer) expire(ctx context.Context) error {
	begin := time.Now()
	probe, err := m.run(ctx, load.Spec{Keys: m.expiring, Messages: int64(m.expiring), InFlight: window}, 0)
	if err != nil {
		return err
	}
	// As long as that took, and then up to the middle of what is timed, behind its warm-up.
	ttl := max(time.Since(begin), time.Duration(probe.Seconds*1e9)) + time.Second + m.duration/2
	if _, err = m.run(ctx, load.Spec{Keys: m.expiring, Messages: int64(m.expiring), InFlight: window}, ttl); err != nil {
		return err
	}
	r, err := m.timed(ctx)
	if err != nil {
		return err
	}
	m.r.Expiry = r.Latency
	n, err := m.node.Client.Cache(cache).Count(ctx)
	m.r.Expired = int64(m.keys) - int64(n)
	if err == nil && m.r.Expired <= 0 {
		err = errors.New("no key has expired")
	}
	return err
}

// disk is the size of all files of the log.
func (m *measurer) disk() (n int64, err error) {
	err = filepath.WalkDir(filepath.Join(m.node.Data(), "shards"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		return err
	})
	return n, err
}
