// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"margay.dev/router/hash"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Queue pushes messages and has groups of consumers work on them. Any stream on disk is a queue, too: what the name was created
// as says only how long a message is kept. Use one for all goroutines; it needs no closing.
//
//	emails := c.Queue("emails")
//	_, err := emails.Push(ctx, client.Record{Value: letter}, client.Delay(5*time.Minute))
//
//	workers, err := emails.Consume(ctx, "workers")
//	err = workers.Handle(ctx, 8, func(ctx context.Context, m *client.Message) error { return send(ctx, m.Value) })
//
// A message is handed out until it is settled: at least once. It comes twice when its consumer died, or was too slow for its
// claim, after it had done the work and before that was settled; when a push whose outcome was unknown is pushed again; and when a
// failover that the queue's rule does not cover lost a settlement. Message.AckAndPublish, and DedupID, keep that from doubling
// what is published in consequence.
type Queue struct {
	c    *Client
	name string
	pub  *Publisher
}

// Queue returns the queue of a name, the same each time. It does not connect: the first operation does.
func (c *Client) Queue(name string) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[name]
	if q == nil {
		q = &Queue{c: c, name: name, pub: c.newPublisher(name, queueWrites{})}
		c.queues[name] = q
	}
	return q
}

// queueWrites is how a queue publishes, whatever the client's defaults are: a push that is answered is a promise, one that is sent
// again must not become two messages, and a settlement may be in the batch.
type queueWrites struct{}

func (queueWrites) applyPublisher(p *publisherConfig) { p.ack, p.anonymous = AckDefault, false }

// Name is the queue's, as it was given.
func (q *Queue) Name() string { return q.name }

// Push stores a message and returns once it is acknowledged; see Publisher.Publish. Delay, TTL and Priority are options, and
// fields of the record.
func (q *Queue) Push(ctx context.Context, rec Record, opts ...RecordOption) (Ack, error) {
	return q.pub.Publish(ctx, rec, opts...)
}

// PushAsync is Push that returns at once, so that many messages are on their way; see Publisher.PublishAsync.
func (q *Queue) PushAsync(ctx context.Context, rec Record, opts ...RecordOption) Future {
	return q.pub.PublishAsync(ctx, rec, opts...)
}

// PushBatch stores messages, all or none within each shard; see Publisher.PublishBatch.
func (q *Queue) PushBatch(ctx context.Context, recs ...Record) ([]BatchAck, error) {
	return q.pub.PublishBatch(ctx, recs...)
}

// ShardOf says to which shard a message with a key goes.
func (q *Queue) ShardOf(ctx context.Context, rec Record) (uint32, error) {
	return q.pub.ShardOf(ctx, rec)
}

// Flush waits until every push that was given to the queue has come to its end. It returns the first error among those that
// nobody has heard of.
func (q *Queue) Flush(ctx context.Context) error { return q.pub.Flush(ctx) }

// resolve returns what the name stands for, if the broker knows queues.
func (q *Queue) resolve(ctx context.Context) (*route, *Error) {
	r, err := q.pub.resolve(ctx)
	if err == nil {
		err = q.c.lacks(wire.FeatureQueues, "queue "+q.name)
	}
	if err != nil {
		return nil, code.From(err)
	}
	return r, nil
}

// gone forgets a route whose log is gone: the next operation asks what the name stands for now.
func (q *Queue) gone(r *route, err *Error) {
	if err.Code == code.Deleted || err.Code == code.NotFound {
		q.pub.drop(r)
	}
}

// Of a message: it is being settled with what is published, or was.
const (
	opPublishing wire.SettleOp = 254
	opPublished  wire.SettleOp = 255
)

// AckAndPublish acks the message and stores records in its shard of the queue, both or neither, in one batch. Records without a
// key go there; those whose key decides another shard are refused. They have no DedupID: the settlement is what lets them be
// stored once. ErrNoLongerOwner says that the claim has ended and nothing was stored.
//
// With an error of class Unknown it may be done, or be done later: let the message be, or Nack it, which has an effect only if it
// is not. Do not Ack it.
func (m *Message) AckAndPublish(ctx context.Context, recs ...Record) ([]Ack, error) {
	if len(recs) == 0 {
		return nil, m.Ack(ctx)
	}
	g := m.g
	g.mu.Lock()
	switch {
	case m.op != 0:
		g.mu.Unlock()
		return nil, code.New(code.NoLongerOwner, "settle message %s: it was settled here before", m.ID())
	case g.err != nil:
		g.mu.Unlock()
		return nil, g.err
	}
	m.op = opPublishing
	g.mu.Unlock()
	c := m.from.claims
	acks, err := g.q.pub.publishSettling(ctx, g.log, m.Shard, recs, &batch.Settlement{
		Group: c.Group, Resets: c.Resets, Generation: c.Generation,
		Tokens: []batch.SettledToken{{HandOut: m.handOut, Offset: m.Offset}},
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		m.op = 0
		return nil, err
	}
	m.op = opPublished
	g.returned()
	return acks, nil
}

// publishSettling stores records in one shard, with the settlement or not at all.
func (p *Publisher) publishSettling(ctx context.Context, log batch.LogID, shard uint32, recs []Record, s *batch.Settlement) ([]Ack, error) {
	r, err := p.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if r.info.Log != log {
		return nil, code.New(code.Deleted, "publish to %s: the message is of a queue that was deleted", p.name)
	}
	var size int64
	pick := make([]int, len(recs))
	for i := range recs {
		pick[i] = i
		rec := &recs[i]
		if err := p.checkOptions(rec); err != nil {
			return nil, err
		}
		if err := rec.check(&r.limits); err != nil {
			return nil, err
		}
		if rec.DedupID != "" {
			return nil, code.New(code.BadRequest, "publish with a settlement: record %d has a DedupID", i)
		}
		if key, bound := rec.binding(); bound && hash.Shard(key, len(r.lanes)) != shard {
			return nil, code.New(code.BadRequest, "publish with a settlement: the key of record %d belongs to shard %d, the message lies in %d; set ShardKey, or publish it apart",
				i, hash.Shard(key, len(r.lanes)), shard)
		}
		size += rec.size()
	}
	if len(recs) > r.limits.Records {
		return nil, code.New(code.TooLarge, "publish with a settlement: %d records, at most %d", len(recs), r.limits.Records).
			With(code.DetailLimit, uint64(r.limits.Records))
	}
	if err := p.charge(ctx, size); err != nil {
		return nil, err
	}
	f, err := r.lanes[shard].addBatch(recs, pick, size, s)
	if err != nil {
		p.c.budget.Release(size)
		return nil, code.From(err)
	}
	first, err := f.wait(ctx, 0)
	if err != nil {
		return nil, err
	}
	acks := make([]Ack, len(recs))
	for i := range acks {
		acks[i] = first
		acks[i].Offset += uint64(i)
	}
	return acks, nil
}
