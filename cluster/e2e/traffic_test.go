// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/history"
)

// traffic is publishers and readers of one stream whose every attempt, answer and record goes into a history.
type traffic struct {
	t       *testing.T
	stream  string
	history *history.Recorder
	acked   atomic.Int64

	ctx     context.Context // ends the readers
	stop    chan struct{}   // ends the publishers
	credits chan struct{}   // one for each record or batch that may be begun
	writers sync.WaitGroup
	readers []*reader
	reading sync.WaitGroup
}

// reader is a subscription to all shards, and how far it has got.
type reader struct {
	name string
	mu   sync.Mutex
	next map[uint32]uint64
	lost []error // each loss of the broker that it was told of
}

func newTraffic(t *testing.T, stream string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{t: t, stream: stream, history: &history.Recorder{}, ctx: ctx, stop: make(chan struct{}), credits: make(chan struct{}, 1<<20)}
	t.Cleanup(func() {
		cancel()
		tr.reading.Wait()
	})
	return tr
}

func (tr *traffic) shard(n uint32) history.Shard { return history.Shard{Log: tr.stream, Number: n} }

// attempt is one record under way.
type attempt struct {
	id     history.ID
	future client.Future
}

func (tr *traffic) begin(who string, rec client.Record) history.ID {
	return tr.history.Begin(history.Attempt{
		Client: who, Op: "publish", Producer: who, Key: string(rec.Key), Digest: history.Sum(rec.Key, rec.Value),
	})
}

// end records an answer. With this stream's fsync an acknowledgement of what is not flushed would be a lie by itself.
func (tr *traffic) end(id history.ID, ack client.Ack, err error) {
	if err != nil {
		tr.t.Logf("publish: %v", err)
		tr.history.End(id, history.Answer{Outcome: outcomeOf(err)})
		return
	}
	if !ack.Flushed || !ack.Committed {
		tr.t.Errorf("acknowledged with %+v, want it flushed and committed", ack)
	}
	tr.history.End(id, history.Answer{
		Outcome: history.Acked, Shard: tr.shard(ack.Shard), Offset: ack.Offset, Generation: ack.Generation, Duplicate: ack.Duplicate,
	})
	tr.acked.Add(1)
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

// publishAsync publishes records of up to maxSize bytes over keys of its own, many under way at once, until the traffic
// is stopped.
func (tr *traffic) publishAsync(c *client.Client, who string, maxSize int) {
	p := c.Publisher(tr.stream)
	rng := rand.New(rand.NewPCG(1, uint64(len(who))))
	underWay := make(chan attempt, 64)
	tr.writers.Go(func() {
		defer close(underWay)
		for n := 0; tr.next(); n++ {
			rec := client.Record{Key: fmt.Appendf(nil, "%s-%d", who, n%7), Value: payload(rng, fmt.Sprintf("%s/%d/", who, n), maxSize)}
			id := tr.begin(who, rec)
			underWay <- attempt{id, p.PublishAsync(context.Background(), rec)}
		}
	})
	tr.writers.Go(func() {
		for a := range underWay {
			ack, err := a.future.Wait(context.Background())
			tr.end(a.id, ack, err)
		}
	})
}

// publishBatches publishes calls of several records of one key, which have to be stored whole or not at all.
func (tr *traffic) publishBatches(c *client.Client, who string, records int) {
	p := c.Publisher(tr.stream)
	rng := rand.New(rand.NewPCG(2, 2))
	tr.writers.Go(func() {
		for n := 0; tr.next(); n++ {
			recs, ids := make([]client.Record, records), make([]history.ID, records)
			for i := range recs {
				recs[i] = client.Record{
					Key:   fmt.Appendf(nil, "%s-%d", who, n%5),
					Value: payload(rng, fmt.Sprintf("%s/%d/%d/", who, n, i), 200),
				}
				ids[i] = tr.begin(who, recs[i])
			}
			acks, err := p.PublishBatch(context.Background(), recs...)
			if len(acks) == 0 {
				for _, id := range ids {
					tr.end(id, client.Ack{}, err)
				}
				continue
			}
			for _, a := range acks {
				for k, i := range a.Records {
					ack := a.Ack
					ack.Offset += uint64(k)
					tr.end(ids[i], ack, a.Err)
				}
			}
		}
	})
}

// payload is a value that nothing else in the history has.
func payload(rng *rand.Rand, head string, maxSize int) []byte {
	v := append([]byte(head), make([]byte, rng.IntN(maxSize))...)
	for i := len(head); i < len(v); i++ {
		v[i] = byte(rng.Uint32())
	}
	return v
}

// allow lets the publishers begin n more records and batches: what is read back grows with what was begun, so that is
// bounded, and not left to the speed of the machine.
func (tr *traffic) allow(n int) {
	for range n {
		tr.credits <- struct{}{}
	}
}

// next waits for leave to begin one more; false means that the traffic is stopped.
func (tr *traffic) next() bool {
	select {
	case <-tr.stop:
		return false
	case <-tr.credits:
		return true
	}
}

// stopPublishers takes no more records and waits until each that was begun is answered.
func (tr *traffic) stopPublishers() {
	tr.t.Helper()
	close(tr.stop)
	done := make(chan struct{})
	go func() { tr.writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-within(tr.t).Done():
		tr.t.Fatalf("waited %v for every publish to be answered", patience)
	}
}

// read subscribes to all shards from the earliest record and reads until the test ends.
func (tr *traffic) read(c *client.Client, name string, shards uint32) *reader {
	tr.t.Helper()
	r := &reader{name: name, next: map[uint32]uint64{}}
	s, err := c.Subscribe(within(tr.t), tr.stream, client.FromEarliest(), client.OnStatus(r.status))
	if err != nil {
		tr.t.Fatalf("subscribe %s: %v", name, err)
	}
	for shard := range shards {
		tr.history.Start(name, tr.shard(shard), 0)
	}
	tr.readers = append(tr.readers, r)
	tr.reading.Go(func() {
		defer s.Close()
		for rec, err := range s.Records(tr.ctx) {
			if err != nil {
				if tr.ctx.Err() == nil && !errors.Is(err, client.ErrClosed) {
					tr.t.Errorf("reader %s: %v", name, err)
				}
				return
			}
			tr.got(r, &rec)
		}
	})
	return r
}

func (tr *traffic) got(r *reader, rec *client.Record) {
	shard := tr.shard(rec.Shard)
	if rec.Gap != nil {
		tr.history.Gap(r.name, shard, rec.Gap.From, rec.Gap.To)
		tr.t.Errorf("reader %s was told of a gap %+v, and nothing may be missing", r.name, *rec.Gap)
	}
	tr.history.Read(r.name, history.Record{
		Shard: shard, Offset: rec.Offset, Key: string(rec.Key), Digest: history.Sum(rec.Key, rec.Value),
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[rec.Shard] = rec.Offset + 1
}

func (r *reader) status(s client.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.Connected && s.Attempt == 0 {
		r.lost = append(r.lost, s.Err)
	}
}

func (r *reader) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n uint64
	for _, next := range r.next {
		n += next
	}
	return n
}

func (r *reader) reached(ends []client.Offsets) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range ends {
		if r.next[e.Shard] < e.Latest {
			return false
		}
	}
	return true
}

// idled lists the losses that the reader noticed by nothing but silence.
func (r *reader) idled() (silent []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.lost {
		if err != nil && strings.Contains(err.Error(), "no recent network activity") {
			silent = append(silent, err)
		}
	}
	return silent
}

// judge reads everything back, waits until every reader has got there too, and holds it all to what clients were told.
func (tr *traffic) judge(c *client.Client) []client.Record {
	tr.t.Helper()
	ends, err := c.Offsets(within(tr.t), tr.stream)
	if err != nil {
		tr.t.Fatal(err)
	}
	all := readAll(tr.t, c, tr.stream)
	for _, rec := range all {
		tr.history.Read("audit", history.Record{
			Shard: tr.shard(rec.Shard), Offset: rec.Offset, Key: string(rec.Key), Digest: history.Sum(rec.Key, rec.Value),
		})
	}
	for _, e := range ends {
		tr.history.Audit("audit", tr.shard(e.Shard), e.Earliest, e.Latest)
	}
	for _, r := range tr.readers {
		eventually(tr.t, "reader "+r.name+" to reach the end", func() bool { return r.reached(ends) })
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
	tr.t.Logf("attempts %v, %d records read, %d stored", byOutcome, reads, len(all))
	if n := byOutcome[history.Acked]; n == 0 || len(byOutcome) > 1 {
		tr.t.Errorf("attempts ended as %v, want each acknowledged: publishers go on over restarts by themselves", byOutcome)
	}
	return all
}
