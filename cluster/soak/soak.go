// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// The streams, and what retention leaves of them: so little that it works all the time.
const (
	bulkStream   = "bulk" // nine tenths of the bytes; kept by size
	bulkShards   = 4
	bulkKept     = 64 << 20 // bytes per shard
	bulkSegment  = 16 << 20
	agedStream   = "aged" // the rest, in small records; kept by age
	agedShards   = 2
	agedKept     = 20 * time.Second
	agedSegment  = 5 * time.Second
	bulkWriters  = 6
	agedWriters  = 2
	endWithin    = 3 * time.Minute // for what is under way when the time is over
	slowReader   = 10 * time.Millisecond
	smallQueue   = 256      // records
	smallReceive = 64 << 10 // bytes
)

// soak is one run.
type soak struct {
	cfg     *config
	harness *harness
	process *process.Process
	context control.Context
	url     string
	ledger  *history.Ledger
	block   []byte
	bulkID  string
	say     func(format string, args ...any)
	report  *report

	published   atomic.Int64 // bytes
	disconnects atomic.Int64
	visits      atomic.Int64

	readers, audits, writers sync.WaitGroup
	clients                  []*client.Client
}

// use is the run: everything that is started here has ended when it returns.
func (r *soak) use(ctx context.Context) {
	r.process = process.Start(r.harness, process.Config{Binary: r.cfg.Margay, Data: filepath.Join(r.harness.dir, "data")})
	r.context, r.url = r.process.Context(), r.process.URL()
	r.create(ctx)
	reading, stopReaders := context.WithCancel(ctx)
	auditing, stopAudits := context.WithCancel(context.WithoutCancel(ctx))
	writing, stopWriters := context.WithCancel(ctx)
	defer func() { // also when the run is cut short
		stopWriters()
		stopReaders()
		stopAudits()
		for _, c := range r.clients {
			c.Close()
		}
		r.writers.Wait()
		r.readers.Wait()
		r.audits.Wait()
	}()
	r.startReaders(reading, auditing)
	r.startWriters(writing)
	r.live(ctx)
	stopReaders()
	r.readers.Wait()
	stopWriters()
	r.await("every publish to be answered", &r.writers)
	r.finish()
}

func (r *soak) create(ctx context.Context) {
	for _, spec := range []control.StreamSpec{
		{Name: bulkStream, Shards: new(bulkShards), MaxBytes: new(int64(bulkKept)), SegmentBytes: new(int64(bulkSegment))},
		{
			Name: agedStream, Shards: new(agedShards), MaxAge: new(control.Duration(agedKept)),
			SegmentAge: new(control.Duration(agedSegment)),
		},
	} {
		s, err := r.process.Control().CreateStream(ctx, r.context.Tenant, r.context.Namespace, spec)
		if err != nil {
			r.harness.Fatalf("create %s: %v", spec.Name, err)
		}
		if spec.Name == bulkStream {
			r.bulkID = s.ID
		}
	}
}

func (r *soak) connect(ctx context.Context) *client.Client {
	c, err := client.Connect(ctx, r.url, client.WithContext(r.context))
	if err != nil {
		r.harness.Fatalf("connect: %v", err)
	}
	r.clients = append(r.clients, c)
	return c
}

func (r *soak) startReaders(ctx, auditing context.Context) {
	for _, stream := range []string{bulkStream, agedStream} {
		c := r.connect(ctx)
		r.audits.Go(func() {
			r.tail(auditing, c, tail{
				name: "auditor of " + stream, stream: stream, policy: client.PolicyCatchUp, audits: true,
				options: []client.SubscribeOption{client.FromEarliest()},
			})
		})
	}
	policies := map[string]client.Policy{
		"drop_new": client.PolicyDropNew, "drop_old": client.PolicyDropOld, "catch_up": client.PolicyCatchUp,
		"disconnect": client.PolicyDisconnect,
	}
	fast, slow := r.connect(ctx), r.connect(ctx)
	tails := []tail{{
		name: "fast, filtered", stream: bulkStream, policy: client.PolicyCatchUp, filtered: true,
		options: []client.SubscribeOption{client.Keys("+/5")},
	}}
	small := []client.SubscribeOption{client.QueueLimits(smallQueue, 0), client.ReceiveBuffer(smallReceive)}
	for name, policy := range policies {
		tails = append(
			tails,
			tail{name: "fast, " + name, stream: agedStream, policy: policy},
			tail{name: "slow, " + name, stream: bulkStream, policy: policy, pace: slowReader, options: small},
		)
	}
	for _, t := range tails {
		c := fast
		if t.pace > 0 {
			c = slow
		}
		r.readers.Go(func() { r.tail(ctx, c, t) })
	}
	named := r.connect(ctx)
	r.readers.Go(func() { r.durable(ctx, named, "by-itself", agedStream, false) })
	r.readers.Go(func() { r.durable(ctx, named, "by-hand", agedStream, true) })
	r.readers.Go(func() { r.churn(ctx) })
}

func (r *soak) startWriters(ctx context.Context) {
	perSecond := float64(r.cfg.MBPerMinute) * 1e6 / 60
	var c *client.Client
	for i := range bulkWriters + agedWriters {
		if i%2 == 0 {
			c = r.connect(ctx)
		}
		p := &publisher{r: r, id: uint32(i + 1), stream: bulkStream, bytesPer: perSecond * 0.9 / bulkWriters, sizes: bulkSizes}
		if i >= bulkWriters {
			p.stream, p.bytesPer, p.sizes, p.dedup = agedStream, perSecond*0.1/agedWriters, smallSizes, 50
		}
		p.to = c.Publisher(p.stream)
		r.writers.Go(func() { p.run(ctx) })
	}
}

func (r *soak) await(what string, all *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(endWithin):
		r.harness.Fatalf("waited %v for %s", endWithin, what)
	}
}

// finish stops the node in order, looks at its files, starts it again, and holds what is there to what clients were told.
func (r *soak) finish() {
	r.say("stop, verify the files, start again, and read to the end\n")
	if exit := r.process.Stop(); exit.Code != 0 {
		r.harness.Errorf("SIGTERM: %v\n%s", exit, exit.Stderr)
	}
	if res := r.process.Command(nil, "log", "verify", r.process.Data()); res.Code != 0 {
		r.harness.Errorf("margay log verify: exit code %d\n%s%s", res.Code, res.Stdout, res.Stderr)
	}
	r.process.Start()
	c := r.clients[0]
	ctx, cancel := context.WithTimeout(r.harness.ctx, endWithin)
	defer cancel()
	for _, stream := range []string{bulkStream, agedStream} {
		ends, err := c.Offsets(ctx, stream)
		if err != nil {
			r.harness.Fatalf("offsets of %s: %v", stream, err)
		}
		for _, e := range ends {
			s := history.Shard{Log: stream, Number: e.Shard}
			for r.ledger.Audited(s) < e.Latest && ctx.Err() == nil {
				pause(ctx, 10*time.Millisecond)
			}
			r.ledger.Close(s, e.Latest)
		}
	}
	if exit := r.process.Stop(); exit.Code != 0 {
		r.harness.Errorf("SIGTERM: %v\n%s", exit, exit.Stderr)
	}
}

// String says what was read and published, for the report's end.
func (r *soak) String() string {
	c := r.ledger.Counts()
	return fmt.Sprintf("%d records acknowledged, %d read by the auditors (%d passed by retention before), %d by others, who were told of %d lost; "+
		"%d visits, %d slow readers disconnected",
		c.Acked, c.Audited, c.Unseen, c.Read, c.Lost, r.visits.Load(), r.disconnects.Load())
}
