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
	// ShardKey, when set, decides the shard in place of Key, so that records of different keys lie together and keep
	// their order. It is not stored.
	ShardKey []byte
	// Value; nil is a tombstone, which differs from an empty value.
	Value   []byte
	Headers []Header
	// Timestamp is the publisher's; zero means now.
	Timestamp time.Time
	// Delay holds the record back from consumer groups, from its append time on. Subscriptions see it at once.
	Delay time.Duration
	// TTL ends the record's life, from its append time on; zero for never. It must be above Delay.
	TTL time.Duration
	// Priority, 0 to 9: consumer groups are handed out what is higher first.
	Priority uint8
	// DedupID, 1 to 128 bytes, makes the shard store the record once however often it is published, also by a process
	// that knows nothing of the first: within the stream's dedup window from the first time on, the others are answered
	// as duplicates with its offset. Each shard remembers for itself, so an id always comes with the same key; without
	// one, the id decides the shard. It is stored as the first header, dedup-id.
	DedupID string

	// Where the record lies, and when it got there.
	Shard      uint32
	Offset     uint64
	Generation uint64
	AppendTime time.Time
	// Gap says which records of the shard will not come, when some before this one will not.
	Gap *Gap

	options recordOptions
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
	headers := r.Headers
	if r.DedupID != "" {
		headers = append([]Header{{Key: batch.DedupHeader, Value: []byte(r.DedupID)}}, headers...)
	}
	return batch.Record{
		Key: r.Key, Value: r.Value, Headers: headers, Timestamp: stamp.UnixMicro(), Delay: r.Delay, TTL: r.TTL,
		Priority: r.Priority,
	}
}

// size bounds what the record takes in a batch: what the client's memory is charged for it.
func (r *Record) size() int64 {
	n := int64(64 + len(r.Key) + len(r.Value) + r.dedupSize())
	for i := range r.Headers {
		n += int64(8 + len(r.Headers[i].Key) + len(r.Headers[i].Value))
	}
	return n
}

// dedupSize is what the dedup id takes as a header.
func (r *Record) dedupSize() int {
	if r.DedupID == "" {
		return 0
	}
	return len(batch.DedupHeader) + len(r.DedupID)
}

// binding is what decides the shard; ok is false when nothing does, and the sequence of a named publisher's record does
// when it is empty.
func (r *Record) binding() (key []byte, ok bool) {
	switch {
	case r.ShardKey != nil:
		return r.ShardKey, true
	case r.Key != nil:
		return r.Key, true
	case r.DedupID != "":
		return []byte(r.DedupID), true
	}
	return nil, false
}

// free says that the record may go to any shard.
func (r *Record) free() bool {
	_, bound := r.binding()
	return !bound && !r.options.sequenced
}

// alone says that the record cannot share its batch: whether it is stored is a question of its own.
func (r *Record) alone() bool {
	return r.DedupID != "" || r.options.conditional || r.options.sequenced || r.options.apart
}

// restore makes the id of a record that was received a field again.
func (r *Record) restore() {
	if len(r.Headers) > 0 && r.Headers[0].Key == batch.DedupHeader {
		r.DedupID, r.Headers = string(r.Headers[0].Value), r.Headers[1:]
	}
}

// check finds at home what the broker would refuse, before anything is charged or queued.
func (r *Record) check(lim *batch.Limits) *Error {
	headers, count := r.dedupSize(), len(r.Headers)
	if r.DedupID != "" {
		count++
	}
	for i := range r.Headers {
		headers += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	switch {
	case r.options.problem != nil:
		return r.options.problem
	case r.Priority > batch.MaxPriority:
		return code.New(code.BadRequest, "publish record: priority %d, at most %d", r.Priority, batch.MaxPriority)
	case r.Delay < 0:
		return code.New(code.BadRequest, "publish record: delay %v is negative", r.Delay)
	case r.TTL < 0:
		return code.New(code.BadRequest, "publish record: TTL %v is negative", r.TTL)
	case r.Delay > batch.MaxSchedule || r.TTL > batch.MaxSchedule:
		return code.New(code.BadRequest, "publish record: delay %v and TTL %v, each at most %v", r.Delay, r.TTL, batch.MaxSchedule)
	case r.TTL > 0 && r.TTL <= r.Delay:
		return code.New(code.BadRequest, "publish record: TTL %v ends before the delay %v", r.TTL, r.Delay)
	case len(r.Key) > lim.Key:
		return tooLarge("key", len(r.Key), lim.Key)
	case len(r.DedupID) > batch.MaxDedupID:
		return tooLarge("dedup id", len(r.DedupID), batch.MaxDedupID)
	case len(r.Headers) > 0 && r.Headers[0].Key == batch.DedupHeader:
		return code.New(code.BadRequest, "publish record: the first header is named %s: set DedupID", batch.DedupHeader)
	case count > lim.Headers:
		return code.New(code.TooLarge, "publish record: %d headers, at most %d", count, lim.Headers).
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
