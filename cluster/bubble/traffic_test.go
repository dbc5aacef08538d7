// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
)

// seedCount asks for more runs of each scenario than the default: go test ./cluster/bubble -run TestCrashes -seeds 5000.
var seedCount = flag.Int("seeds", 0, "how many seeds of each scenario to run; 0: few with -short, 100 without")

// seeds runs a scenario once for each seed. One alone: -run 'TestCrashes/^17$' -seeds 18.
func seeds(t *testing.T, short int, scenario func(t *testing.T, b *Bubble)) {
	t.Helper()
	n := 100
	switch {
	case *seedCount > 0:
		n = *seedCount
	case testing.Short():
		n = short
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { Run(t, seed, scenario) })
	}
}

// traffic is what clients do to one stream, and what they saw.
type traffic struct {
	t       *testing.T
	stream  string
	history history.Recorder
	// weak: acknowledgements of what is not flushed are what the stream promises.
	weak bool

	ctx     context.Context
	cancel  context.CancelFunc
	reading sync.WaitGroup
	writing sync.WaitGroup
	readers []*reader
}

// reader is a subscription and how far it has got.
type reader struct {
	name   string
	prefix string // of the keys that it asked for; empty for all records
	err    error

	mu   sync.Mutex
	next map[uint32]uint64
	keys []string
}

func newTraffic(t *testing.T, stream string) *traffic {
	t.Helper()
	tr := &traffic{t: t, stream: stream}
	tr.ctx, tr.cancel = context.WithCancel(t.Context())
	t.Cleanup(func() {
		tr.cancel()
		tr.reading.Wait()
	})
	return tr
}

func (tr *traffic) shard(n uint32) history.Shard { return history.Shard{Log: tr.stream, Number: n} }

// publish publishes n records, one every pause, without waiting for their answers. It returns at once; settle waits.
func (tr *traffic) publish(p *client.Publisher, who string, n int, pause time.Duration) {
	tr.writing.Go(func() {
		for i := range n {
			rec := client.Record{Key: fmt.Appendf(nil, "%s-%d", who, i%5), Value: fmt.Appendf(make([]byte, 0, 200), "%s/%d/%100d", who, i, i)}
			id := tr.history.Begin(history.Attempt{
				Client: who, Op: "publish", Producer: who, Key: string(rec.Key), Digest: history.Sum(rec.Key, rec.Value),
			})
			f := p.PublishAsync(context.Background(), rec)
			tr.writing.Go(func() {
				ack, err := f.Wait(context.Background())
				tr.end(id, ack, err)
			})
			time.Sleep(pause)
		}
	})
}

func (tr *traffic) end(id history.ID, ack client.Ack, err error) {
	if err != nil {
		tr.t.Logf("publish: %v", err)
		tr.history.End(id, history.Answer{Outcome: outcomeOf(err)})
		return
	}
	if !tr.weak && (!ack.Flushed || !ack.Committed) {
		tr.t.Errorf("acknowledged with %+v, want it flushed and committed", ack)
	}
	tr.history.End(id, history.Answer{
		Outcome: history.Acked, Shard: tr.shard(ack.Shard), Offset: ack.Offset, Generation: ack.Generation,
		Duplicate: ack.Duplicate, Weak: tr.weak,
	})
}

func outcomeOf(err error) history.Outcome {
	if e := client.AsError(err); e != nil {
		switch e.Class {
		case client.Refused:
			return history.Refused
		case client.Fatal:
			return history.Fatal
		default:
		}
	}
	return history.Unknown
}

// settle waits until every publish is answered and returns how they ended.
func (tr *traffic) settle() map[history.Outcome]int {
	tr.writing.Wait()
	byOutcome, _ := tr.history.Counts()
	return byOutcome
}

// read subscribes and reads until the test ends, pausing after each record.
func (tr *traffic) read(c *client.Client, name string, pause time.Duration, opts ...client.SubscribeOption) *reader {
	tr.t.Helper()
	return tr.start(c, &reader{name: name, next: map[uint32]uint64{}}, pause, opts...)
}

// readPrefix reads the records whose keys begin so.
func (tr *traffic) readPrefix(c *client.Client, name, prefix string) *reader {
	tr.t.Helper()
	tr.history.Filtered(name)
	return tr.start(c, &reader{name: name, prefix: prefix, next: map[uint32]uint64{}}, 0, client.KeyPrefix(prefix))
}

func (tr *traffic) start(c *client.Client, r *reader, pause time.Duration, opts ...client.SubscribeOption) *reader {
	tr.t.Helper()
	s, err := c.Subscribe(tr.ctx, tr.stream, append([]client.SubscribeOption{client.FromEarliest()}, opts...)...)
	if err != nil {
		tr.t.Fatalf("subscribe %s: %v", r.name, err)
	}
	tr.readers = append(tr.readers, r)
	tr.reading.Go(func() {
		defer s.Close()
		r.err = tr.follow(r, s, pause)
		if r.err != nil && tr.ctx.Err() == nil && !errors.Is(r.err, client.ErrClosed) {
			tr.t.Errorf("reader %s: %v", r.name, r.err)
		}
	})
	return r
}

func (tr *traffic) follow(r *reader, s *client.Subscription, pause time.Duration) error {
	for rec, err := range s.Records(tr.ctx) {
		if err != nil {
			return err
		}
		tr.got(r, &rec)
		if pause > 0 {
			time.Sleep(pause)
		}
	}
	return nil
}

func (tr *traffic) got(r *reader, rec *client.Record) {
	shard := tr.shard(rec.Shard)
	if rec.Gap != nil {
		tr.history.Gap(r.name, shard, rec.Gap.From, rec.Gap.To)
	}
	tr.history.Read(r.name, history.Record{
		Shard: shard, Offset: rec.Offset, Key: string(rec.Key), Digest: history.Sum(rec.Key, rec.Value),
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[rec.Shard] = rec.Offset + 1
	r.keys = append(r.keys, string(rec.Key))
}

// matching counts the records that were read whose keys begin so.
func (r *reader) matching(prefix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.keys {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}

// caughtUp says whether the reader has all that the audit has of what it asked for.
func (r *reader) caughtUp(audit *reader, ends []client.Offsets) bool {
	if r.prefix != "" {
		return r.matching(r.prefix) == audit.matching(r.prefix)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range ends {
		if r.next[e.Shard] < e.Latest {
			return false
		}
	}
	return true
}

// judge reads everything back over a good network, waits until every reader has got there too, and holds it all to what
// clients were told.
func (tr *traffic) judge(c *client.Client) {
	tr.t.Helper()
	ends, err := c.Offsets(tr.t.Context(), tr.stream)
	if err != nil {
		tr.t.Fatal(err)
	}
	s, err := c.Subscribe(tr.t.Context(), tr.stream, client.FromEarliest(), client.UntilMark())
	if err != nil {
		tr.t.Fatal(err)
	}
	defer s.Close()
	audit := &reader{name: "audit", next: map[uint32]uint64{}}
	if err := tr.follow(audit, s, 0); err != nil {
		tr.t.Fatalf("audit: %v", err)
	}
	for _, e := range ends {
		tr.history.Audit("audit", tr.shard(e.Shard), e.Earliest, e.Latest)
	}
	for _, r := range tr.readers {
		eventually(tr.t, "reader "+r.name+" to reach the end", func() bool { return r.caughtUp(audit, ends) })
	}
	violations := tr.history.Check()
	for i, v := range violations {
		if i == 20 {
			tr.t.Errorf("... and %d more", len(violations)-i)
			break
		}
		tr.t.Error(v)
	}
	byOutcome, reads := tr.history.Counts()
	tr.t.Logf("attempts %v, %d records read, %v since the bubble began", byOutcome, reads, time.Since(epoch).Round(time.Second))
	if byOutcome[history.Acked] == 0 {
		tr.t.Error("nothing was acknowledged: the run proves nothing")
	}
}

// epoch is when a bubble's clock starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// eventually waits, in virtual time, for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 minutes for %s", what)
		}
	}
}
