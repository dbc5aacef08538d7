// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// RecordOption says under which condition a record is to be stored, when it is due and how long it lives, or which of a named
// publisher's records it is.
type RecordOption interface{ applyRecord(o *recordOptions) }

type recordOptions struct {
	conditional bool
	version     uint64
	sequenced   bool
	sequence    uint64
	derive      wire.DeriveOp // of caches
	apart       bool          // in a batch of its own
	// What With puts into the record's fields, when it was given.
	givenDelay, givenTTL *time.Duration
	givenPriority        *uint8
	problem              *Error // an option that makes no sense
}

type recordOption func(o *recordOptions)

func (f recordOption) applyRecord(o *recordOptions) { f(o) }

// IfVersion stores the record only if its key has this version: Ack.Version of the newest record of the key, which is
// one above its offset. Otherwise nothing is stored and the error is ErrConflict; CurrentVersion says which version the
// key has. It is decided in the shard's order of appends, so of several that expect one version exactly one is stored.
//
// A key has no version (0) when it was never written in the shard, when its newest record is a tombstone or has
// expired, and when retention or a trim has removed that. Versions are of the shard: give a key the same ShardKey each
// time, or none.
//
// The first condition after a while makes the shard read its log; the publish waits for it.
func IfVersion(version uint64) Condition {
	return condition(func(o *recordOptions) { o.conditional, o.version = true, version })
}

// IfAbsent stores the record only if its key has no version: it is IfVersion(0).
func IfAbsent() Condition { return IfVersion(0) }

// Sequence tells which of its publisher's records this is; see ProducerName.
func Sequence(n uint64) RecordOption {
	return recordOption(func(o *recordOptions) { o.sequenced, o.sequence = true, n })
}

// With returns the record with options, for PublishBatch: all conditions of a call's records for one shard must hold
// there, or none of those records is stored.
func (r Record) With(opts ...RecordOption) Record {
	for _, o := range opts {
		o.applyRecord(&r.options)
	}
	o := &r.options
	if o.givenDelay != nil {
		r.Delay = *o.givenDelay
	}
	if o.givenTTL != nil {
		r.TTL = *o.givenTTL
	}
	if o.givenPriority != nil {
		r.Priority = *o.givenPriority
	}
	return r
}

// Delay holds the record back from consumer groups for so long, from its append time on: Record.Delay.
func Delay(d time.Duration) RecordOption {
	return recordOption(func(o *recordOptions) { o.givenDelay = &d })
}

// Priority lets consumer groups be handed out the record before those of a lower one, 0 to 9: Record.Priority. What has waited for
// the group's priority age goes first, whatever its priority.
func Priority(p int) RecordOption {
	return recordOption(func(o *recordOptions) {
		if p < 0 || p > batch.MaxPriority {
			o.problem = code.New(code.BadRequest, "publish record: priority %d: want 0 to %d", p, batch.MaxPriority)
			return
		}
		u := uint8(p)
		o.givenPriority = &u
	})
}

// Version is what IfVersion takes: one above the offset.
func (a Ack) Version() uint64 { return a.Offset + 1 }

// Version is what IfVersion takes: one above the offset.
func (r *Record) Version() uint64 { return r.Offset + 1 }

// CurrentVersion says, of an ErrConflict of a conditional publish, which version the key has instead: 0 when it has none.
// Index is the record's in the shard's part of a PublishBatch call, else 0.
func CurrentVersion(err error) (version uint64, index int, ok bool) {
	e := AsError(err)
	if e == nil || e.Code != code.Conflict {
		return 0, 0, false
	}
	version, ok = e.Details.Get(code.DetailLatest)
	i, _ := e.Details.Get(code.DetailIndex)
	return version, int(i), ok
}

// ProducerName makes the publisher go on as the producer of this name, also in another process: brokers remember which of
// its records they have, so that an application which was interrupted can publish again from any point before, and each
// record is stored once.
//
// Each record is published with Sequence, a number of the application's that rises and always tells the same record, for
// example the line of a file. Numbers rise in each shard; they may leave gaps, as they do where records of one count go
// to several shards. Records without a key go to the shard that their sequence gives, so that they go there again.
//
// A record that is published again is answered as a duplicate, with its offset, if it is among the last 256 that the
// shard has of the producer. One that the shard has gone past without it fails with ErrOutOfOrder, and so does one that is
// older: of that the shard cannot tell whether it has it, and the error's class is Unknown. Sequences says how far each
// shard is, so that these need not be sent:
//
//	last, err := p.Sequences(ctx)
//	for n, rec := range records {
//		if shard, err := p.ShardOf(ctx, rec, client.Sequence(n)); err == nil && n <= last[shard] {
//			continue
//		}
//		p.PublishAsync(ctx, rec, client.Sequence(n))
//	}
//
// That skips what was stored, in each shard for itself, since how far one is says nothing about another. It leaves nothing
// out, because nothing passes over a record that was not stored: those of its shard that were given behind it fail with
// ErrClosed, and the publisher takes no more of them. Another publisher of the name goes on. (A record that lost its
// comparison is decided, not left out.)
//
// One process at a time uses a name. A shard remembers 10,000 producers; only when there are more does it forget one that
// was silent for 15 minutes. The producer id is the first eight bytes of the name's SHA-256, little-endian, and 1 should
// they be 0.
func ProducerName(name string) PublisherOption {
	return publisherOption(func(p *publisherConfig) {
		p.producerName, p.producer = name, producerID(name)
	})
}

type publisherOption func(p *publisherConfig)

func (o publisherOption) applyPublisher(p *publisherConfig) { o(p) }

func producerID(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}

// LastSequence is the sequence of the last record of this named publisher that is committed in a shard; 0 when the shard
// knows of none.
func (p *Publisher) LastSequence(ctx context.Context, shard uint32) (uint64, error) {
	r, err := p.named(ctx)
	if err != nil {
		return 0, err
	}
	if int(shard) >= len(r.lanes) {
		return 0, code.New(code.BadRequest, "last sequence of %s: there is no shard %d", p.name, shard)
	}
	return p.lastSequence(ctx, r, shard)
}

// Sequences is LastSequence of every shard.
func (p *Publisher) Sequences(ctx context.Context) ([]uint64, error) {
	r, err := p.named(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]uint64, len(r.lanes))
	for s := range all {
		if all[s], err = p.lastSequence(ctx, r, uint32(s)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *Publisher) named(ctx context.Context) (*route, error) {
	r, err := p.resolve(ctx)
	switch {
	case err != nil:
		return nil, err
	case p.cfg.producer == 0:
		return nil, code.New(code.BadRequest, "sequences of %s: the publisher has no ProducerName", p.name)
	}
	return r, p.c.lacks(wire.FeatureDedup, "sequences of "+p.name)
}

func (p *Publisher) lastSequence(ctx context.Context, r *route, shard uint32) (uint64, error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	var last wire.ProducerLast
	if err := p.c.caller.call(ctx, &wire.ProducerState{Log: r.info.Log, Shard: shard, Producer: p.cfg.producer}, &last); err != nil {
		return 0, err
	}
	return last.LastSequence, nil
}

// ShardOf says to which shard a record goes. A record that nothing binds to one (no key, ShardKey, DedupID or Sequence)
// is a bad request.
func (p *Publisher) ShardOf(ctx context.Context, rec Record, opts ...RecordOption) (uint32, error) {
	r, err := p.resolve(ctx)
	if err != nil {
		return 0, err
	}
	rec = rec.With(opts...)
	if rec.free() {
		return 0, code.New(code.BadRequest, "shard of a record for %s: it has no key, and goes anywhere", p.name)
	}
	return r.laneOf(&rec).shard, nil
}

// lacks is the error when the broker does not serve a feature; nil when it does, or is not known yet.
func (c *Client) lacks(feature wire.Features, what string) error {
	if conn := c.requests.Current(); conn != nil && !conn.Hello.Features.Has(feature) {
		return code.New(code.Unsupported, "%s: the broker cannot", what)
	}
	return nil
}

// checkOptions finds at home what cannot be meant.
func (p *Publisher) checkOptions(rec *Record) error {
	o := &rec.options
	if rec.Priority > 0 {
		if err := p.c.lacks(wire.FeatureQueues, "publish record with a priority"); err != nil {
			return err
		}
	}
	switch {
	case o.conditional && rec.Key == nil:
		return code.New(code.BadRequest, "publish record: IfVersion of a record without a key")
	case o.sequenced != (p.cfg.producer != 0):
		if o.sequenced {
			return code.New(code.BadRequest, "publish record: Sequence is for a publisher with a ProducerName")
		}
		return code.New(code.BadRequest, "publish record: each record of producer %q takes a Sequence", p.cfg.producerName)
	case o.sequenced && o.sequence == 0:
		return code.New(code.BadRequest, "publish record: Sequence begins at 1")
	case o.sequenced && rec.DedupID != "":
		return code.New(code.BadRequest, "publish record: Sequence and DedupID: give one of them")
	case o.conditional:
		return p.c.lacks(wire.FeatureConditions, "publish record with a condition")
	case rec.DedupID != "":
		return p.c.lacks(wire.FeatureDedup, "publish record with a dedup id")
	}
	return nil
}
