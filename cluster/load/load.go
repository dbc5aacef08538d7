// SPDX-License-Identifier: Apache-2.0

// Package load drives a messaging system and measures it: the same code makes the messages, keeps the windows and reads the
// clock whatever the system is, which it touches only through an adapter, and it refuses to report a mean latency, or one
// that leaves out what a stalled system kept from being sent.
package load

import (
	"context"
	"encoding/binary"
	"io"
)

// System is an adapter: what a system must be able to do to be measured. One value drives one running system, in a place
// of its own (a stream, a subject, a key) that Close removes.
type System interface {
	// Publisher opens the publisher of client i, over a connection of its own. It calls done for what Publish took.
	Publisher(ctx context.Context, i int, done Done) (Publisher, error)
	// Subscribe begins to receive. When it returns, every message published from then on will be delivered.
	Subscribe(ctx context.Context, s Subscription) (io.Closer, error)
	Close() error
}

// Done says that n messages that were handed over with the stamp at were acknowledged, or have failed with err. Every message
// that Publish took is told of exactly once, from any goroutine, during Publish too. An adapter that learns of many at once
// may tell of those with equal stamps together.
type Done func(at int64, n int, err error)

// Publisher is used by one goroutine.
type Publisher interface {
	// Publish hands over one message, whose bytes are the caller's again when it returns. It may wait for room. When it
	// returns an error, the message was not taken and done is not called. It must not wait for more messages to come:
	// what is handed over is sent at once, or as soon as Flush is called, if the publisher has that method (Flusher).
	Publish(ctx context.Context, msg []byte, at int64) error
	// Close gives up what is under way. When it returns, everything has been told of.
	Close() error
}

// Flusher is a Publisher with a buffer. Flush is called behind each group of messages that were ready to go at once.
type Flusher interface {
	Flush(ctx context.Context) error
}

// Subscription is one subscriber.
type Subscription struct {
	// Index counts subscribers from 0. Those with the same Connection share a connection.
	Index, Connection int
	// Replay begins at the oldest message. Otherwise at the next one to be published.
	Replay bool
	// Each is called for every message, in order, by one goroutine at a time. The bytes are the adapter's again when it
	// returns.
	Each func(msg []byte)
	// Fail is called once when nothing more will be delivered, and not because of Close.
	Fail func(err error)
}

// StampSize is how many bytes a message begins with that say when it was sent. No message is shorter.
const StampSize = 8

// Stamp returns when a message was sent, or should have been at a fixed rate, in Unix nanoseconds.
func Stamp(msg []byte) int64 { return int64(binary.LittleEndian.Uint64(msg)) }

func putStamp(msg []byte, at int64) { binary.LittleEndian.PutUint64(msg, uint64(at)) }
