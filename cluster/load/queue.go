// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Queue is an adapter of a system that hands messages out and is told what became of them. One value drives one running system,
// in a place of its own (a queue, and a group that works it off) that Close removes.
type Queue interface {
	// Pusher opens the pusher of client i, over a connection of its own. It calls done for what Put took. Messages of a run
	// without keys have the key "".
	Pusher(ctx context.Context, i int, done Done) (Putter, error)
	// Consume begins to work messages off. When it returns, every message that is there, or comes, will be handed out to one of
	// the consumers.
	Consume(ctx context.Context, c Consumer) (io.Closer, error)
	// Left is how many messages the system still has to hand out, or waits to hear of.
	Left(ctx context.Context) (int64, error)
	Close() error
}

// Consumer is one that works messages off. The adapter acknowledges each when Handle has returned, and has as many of these
// acknowledgements under way as may be out.
type Consumer struct {
	// Index counts consumers from 0. Those with the same Connection share a connection.
	Index, Connection int
	// MaxInFlight is how many messages are out with it, at most, that are not settled.
	MaxInFlight int
	// Handle is called for every message, by one goroutine at a time. The bytes are the adapter's again when it returns.
	Handle func(msg []byte)
	// Settled says that n more acknowledgements were confirmed; of a system that confirms none, that they were sent. It is
	// called from any goroutine.
	Settled func(n int)
	// Fail is called once when nothing more will be handed out, and not because of Close; also when a message comes a second time.
	Fail func(err error)
}

// Queued makes a Queue what Run takes, for the workloads work and handle.
func Queued(q Queue) System { return queued{q} }

type queued struct{ Queue }

var errNeedsQueue = errors.New("this adapter hands nothing out: work and handle need one that does")

func (queued) Publisher(context.Context, int, Done) (Publisher, error) { return nil, errNeedsStream }

func (queued) Subscribe(context.Context, Subscription) (io.Closer, error) { return nil, errNeedsStream }

// String is the adapter's own, if it has one.
func (q queued) String() string {
	if s, ok := q.Queue.(fmt.Stringer); ok {
		return s.String()
	}
	return "a system that hands messages out"
}
