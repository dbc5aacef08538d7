// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
)

// underWay is how many records a publisher has without an answer at the most.
const underWay = 1024

// publisher publishes to one stream at a steady pace, and catches up with it after a restart.
type publisher struct {
	r        *soak
	id       uint32
	stream   string
	bytesPer float64 // in a second
	sizes    func(rng *rand.Rand) int
	dedup    int // every how manieth record has a dedup id; 0: none
	to       *client.Publisher
}

type pending struct {
	tag    history.Tag
	future client.Future
}

// run publishes until ctx ends, and returns when every record is answered.
func (p *publisher) run(ctx context.Context) {
	answers := make(chan pending, underWay)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a := range answers {
			ack, err := a.future.Wait(context.Background())
			p.r.answered(p.stream, a.tag, ack, err)
		}
	}()
	defer func() { close(answers); <-done }()
	rng := rand.New(rand.NewPCG(uint64(p.id), 1))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	budget, last := 0.0, time.Now()
	for n := uint64(1); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		budget = min(budget+p.bytesPer*now.Sub(last).Seconds(), 2*p.bytesPer) // what a restart cost is made up for, in part
		for last = now; budget > 0; n++ {
			size := p.sizes(rng)
			budget -= float64(size)
			t := history.Tag{Producer: p.id, N: n}
			rec := client.Record{Key: fmt.Appendf(nil, "%d/%d", p.id, n%16), Value: makeValue(p.r.block, t, size)}
			if p.dedup > 0 && n%uint64(p.dedup) == 0 {
				rec.DedupID = fmt.Sprintf("%d/%d", p.id, n)
			}
			p.r.ledger.Begin(t)
			// Not the publishers' context: what was begun is to be answered by the broker.
			answers <- pending{t, p.to.PublishAsync(context.Background(), rec)}
			p.r.published.Add(int64(size))
		}
	}
}

// answered enters an answer into the history.
func (r *soak) answered(stream string, t history.Tag, ack client.Ack, err error) {
	if err != nil {
		outcome := history.Unknown
		switch e := client.AsError(err); {
		case e == nil:
		case e.Class == client.Refused:
			outcome = history.Refused
		case e.Class == client.Fatal:
			outcome = history.Fatal
		default:
		}
		r.harness.Errorf("%s was not acknowledged, though publishers go on over restarts: %v", t, err)
		r.ledger.End(t, history.Answer{Outcome: outcome})
		return
	}
	if !ack.Flushed || !ack.Committed {
		r.harness.Errorf("%s is acknowledged as %+v, want it flushed and committed", t, ack)
	}
	r.ledger.End(t, history.Answer{
		Outcome: history.Acked, Shard: history.Shard{Log: stream, Number: ack.Shard}, Offset: ack.Offset,
		Generation: ack.Generation, Duplicate: ack.Duplicate,
	})
}

// bulkSizes are mostly a few KiB, now and then much more.
func bulkSizes(rng *rand.Rand) int {
	if rng.IntN(200) == 0 {
		return 32<<10 + rng.IntN(96<<10)
	}
	return 1<<10 + rng.IntN(6<<10)
}

func smallSizes(rng *rand.Rand) int { return 100 + rng.IntN(1500) }
