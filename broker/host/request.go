// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Replier answers publishes. The shard's goroutine calls it, so it must not wait for the network.
type Replier interface {
	// Answer queues the answer to r and reports whether it is the first since the last Flush.
	Answer(r *Request, ack shard.Ack, err *code.Error) (first bool)
	// Flush sends what was queued: once for all answers of a commit.
	Flush()
}

// Request is one publish on its way through a shard. Buffer holds the batch at Buffer[Head:] and is owned
// by the request: those bytes are what is written to disk and, with the frame of a delivery put in front
// of them in place, what subscribers are sent.
type Request struct {
	Buffer      []byte
	Head        int
	Publish     shard.Publish
	Correlation uint64
	Lane        Replier
	Began       time.Time // when it had arrived
}

func sizeOf(reqs []*Request) (n int64) {
	for _, r := range reqs {
		n += int64(len(r.Buffer))
	}
	return n
}

// HeadRoom is what a request's buffer must leave before the batch for the frame of its delivery.
const HeadRoom = wire.HeaderSize + wire.DeliverHead

// envelopeOf makes the frame of a batch that no request has brought.
func envelopeOf(b batch.Batch, shardID uint32, mark uint64) *fanout.Envelope {
	frame := wire.AppendFrame(nil, 0, &wire.Deliver{Shard: shardID, Mark: mark, Batch: b})
	return &fanout.Envelope{Frame: frame, Batch: batch.Batch(frame[HeadRoom:]), Shard: shardID, Mark: mark}
}

// envelope turns a committed request into what its subscribers are sent.
func (r *Request) envelope(shardID uint32, mark uint64) *fanout.Envelope {
	b := batch.Batch(r.Buffer[r.Head:])
	frame := r.Buffer[r.Head-HeadRoom:]
	d := wire.Deliver{Shard: shardID, Mark: mark, Batch: b}
	d.AppendHead(frame[:0])
	return &fanout.Envelope{Frame: frame, Batch: b, Shard: shardID, Mark: mark}
}
