// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Header is a named value beside a record.
type Header = batch.Header

// Record is one record. To publish, fill in the first group; a subscription fills in both.
type Record struct {
	// Key decides the shard; nil for none. Records of one key keep their order.
	Key []byte
	// Value; nil is a tombstone, which differs from an empty value.
	Value   []byte
	Headers []Header
	// Timestamp is the publisher's; zero means now.
	Timestamp time.Time
	// Delay holds the record back from consumer groups, from its append time on. Subscriptions see it at once.
	Delay time.Duration
	// TTL ends the record's life, from its append time on; zero for never. It must be above Delay.
	TTL time.Duration

	// Where the record lies, and when it got there.
	Shard      uint32
	Offset     uint64
	Generation uint64
	AppendTime time.Time
	// Gap says which records of the shard will not come, when some before this one will not.
	Gap *Gap
}

// Gap is a range of offsets, To exclusive, that a subscription did not deliver.
type Gap struct {
	From, To uint64
	Reason   GapReason
}

// GapReason says why records were not delivered.
type GapReason uint8

// The reasons.
const (
	// GapDropped: the queue at the broker was full and the overflow policy is to drop.
	GapDropped = GapReason(wire.GapDropped)
	// GapRetention: retention removed them before they were read.
	GapRetention = GapReason(wire.GapRetention)
	// GapCut: a failover cut the log; what was at these offsets is not in it any more.
	GapCut = GapReason(wire.GapCut)
	// GapAcceptedLoss: an operator accepted their loss in a repair.
	GapAcceptedLoss = GapReason(wire.GapAcceptedLoss)
	// GapUnreadable: their producer compressed them in a way that nobody can undo.
	GapUnreadable = GapReason(wire.GapUnreadable)
)

// String returns the word for the reason.
func (r GapReason) String() string {
	switch r {
	case GapDropped:
		return "dropped"
	case GapRetention:
		return "retention"
	case GapCut:
		return "cut"
	case GapAcceptedLoss:
		return "accepted_loss"
	case GapUnreadable:
		return "unreadable"
	}
	return "unknown"
}

// Ack says where a record was stored and what had been reached when that was said.
type Ack struct {
	Shard      uint32
	Offset     uint64
	Generation uint64
	AppendTime time.Time
	// Replicas that hold the record, the leader included.
	Replicas int
	// Flushed: it is on disk at the replicas counted. Committed: readers can see it, and no failover that the log's
	// rule covers loses it. Duplicate: an earlier attempt had stored it.
	Flushed, Committed, Duplicate bool
}

// AckLevel is what an acknowledgement waits for.
type AckLevel = wire.Ack

// The levels. AckDefault leaves it to the log; a publisher may ask for less than the log's rule, not for more.
const (
	AckDefault = wire.AckDefault
	AckNone    = wire.AckNone
	AckLeader  = wire.AckLeader
	AckQuorum  = wire.AckQuorum
)

func (r *Record) encode(now time.Time) batch.Record {
	stamp := r.Timestamp
	if stamp.IsZero() {
		stamp = now
	}
	return batch.Record{
		Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: stamp.UnixMicro(), Delay: r.Delay, TTL: r.TTL,
	}
}

// size bounds what the record takes in a batch: what the client's memory is charged for it.
func (r *Record) size() int64 {
	n := int64(64 + len(r.Key) + len(r.Value))
	for i := range r.Headers {
		n += int64(8 + len(r.Headers[i].Key) + len(r.Headers[i].Value))
	}
	return n
}

// check finds at home what the broker would refuse, before anything is charged or queued.
func (r *Record) check(lim *batch.Limits) *Error {
	headers := 0
	for i := range r.Headers {
		headers += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	switch {
	case r.Delay < 0:
		return code.New(code.BadRequest, "publish record: delay %v is negative", r.Delay)
	case r.TTL < 0:
		return code.New(code.BadRequest, "publish record: TTL %v is negative", r.TTL)
	case r.TTL > 0 && r.TTL <= r.Delay:
		return code.New(code.BadRequest, "publish record: TTL %v ends before the delay %v", r.TTL, r.Delay)
	case len(r.Key) > lim.Key:
		return tooLarge("key", len(r.Key), lim.Key)
	case len(r.Headers) > lim.Headers:
		return code.New(code.TooLarge, "publish record: %d headers, at most %d", len(r.Headers), lim.Headers).
			With(code.DetailLimit, uint64(lim.Headers))
	case headers > lim.HeaderBytes:
		return tooLarge("headers", headers, lim.HeaderBytes)
	case len(r.Key)+headers+len(r.Value) > lim.Record:
		return tooLarge("record", len(r.Key)+headers+len(r.Value), lim.Record)
	}
	return nil
}

func tooLarge(what string, size, limit int) *Error {
	return code.New(code.TooLarge, "publish record: %s of %d bytes, at most %d", what, size, limit).
		With(code.DetailLimit, uint64(limit))
}

// refusal turns what the batch builder says about a record into an error for the caller.
func refusal(err error) *Error {
	c := code.BadRequest
	if errors.Is(err, batch.ErrTooLarge) {
		c = code.TooLarge
	}
	return code.New(c, "publish record: %w", err)
}
