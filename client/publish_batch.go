// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"

	"margay.dev/wire/code"
)

// BatchAck is the fate of the records of one PublishBatch call in one shard: all are stored, at consecutive offsets
// from Ack.Offset on, or none is.
type BatchAck struct {
	Ack
	// Records are the places of the shard's records in the call, in order.
	Records []int
	// Err is nil when they are stored.
	Err error
}

// PublishBatch stores records, all or none within each shard, and returns once every shard has answered. Acks has one
// element per shard concerned. The error is the first of them, or what kept all of the records from being sent. Records
// without a key go to one shard together.
func (p *Publisher) PublishBatch(ctx context.Context, recs ...Record) ([]BatchAck, error) {
	if len(recs) == 0 {
		return nil, code.New(code.BadRequest, "publish batch: no records")
	}
	r, err := p.resolve(ctx)
	if err != nil {
		return nil, err
	}
	for i := range recs {
		if err := p.checkOptions(&recs[i]); err != nil {
			return nil, err
		}
	}
	acks, sizes, total, err := r.divide(recs)
	if err != nil {
		return nil, err
	}
	// Room for all shards at once: half of a call that waits for the other half could wait for itself.
	if err := p.charge(ctx, total); err != nil {
		return nil, err
	}
	flights := make([]*flight, len(acks))
	for i := range acks {
		f, err := r.lanes[acks[i].Shard].addBatch(recs, acks[i].Records, sizes[i], nil)
		if err != nil {
			p.c.budget.Release(sizes[i])
			if errors.Is(err, errLaneEnded) {
				p.drop(r)
				err = code.New(code.Closed, "publish batch to %s: the publisher was closed or the log deleted", p.name)
			}
			acks[i].Err = err
			continue
		}
		flights[i] = f
	}
	var first error
	for i, f := range flights {
		if f != nil {
			shard := acks[i].Shard
			acks[i].Ack, acks[i].Err = f.wait(ctx, 0)
			acks[i].Shard = shard
		}
		if first == nil {
			first = acks[i].Err
		}
	}
	return acks, first
}

// divide checks the records and sorts them by shard, without taking anything.
func (r *route) divide(recs []Record) (acks []BatchAck, sizes []int64, total int64, err error) {
	sticky := r.sticky.Load()
	at := map[uint32]int{}
	for i := range recs {
		if err := recs[i].check(&r.limits); err != nil {
			return nil, nil, 0, err
		}
		shard := sticky
		if !recs[i].free() {
			shard = r.laneOf(&recs[i]).shard
		}
		k, ok := at[shard]
		if !ok {
			k = len(acks)
			at[shard] = k
			acks = append(acks, BatchAck{Ack: Ack{Shard: shard}})
			sizes = append(sizes, 0)
		}
		acks[k].Records = append(acks[k].Records, i)
		sizes[k] += recs[i].size()
		total += recs[i].size()
	}
	for k := range acks {
		if err := mayShare(recs, acks[k].Records); err != nil {
			return nil, nil, 0, err
		}
		if n := len(acks[k].Records); n > r.limits.Records {
			return nil, nil, 0, code.New(code.TooLarge, "publish batch: %d records for shard %d, at most %d", n, acks[k].Shard, r.limits.Records).
				With(code.DetailLimit, uint64(r.limits.Records))
		}
	}
	return acks, sizes, total, nil
}

// mayShare refuses records that are batches of their own beside others of their shard.
func mayShare(recs []Record, pick []int) error {
	for _, i := range pick {
		if recs[i].options.sequenced || recs[i].DedupID != "" && len(pick) > 1 {
			return code.New(code.BadRequest, "publish batch: record %d has a DedupID or a Sequence, which stand for one record: use Publish", i)
		}
	}
	return nil
}
