// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

const (
	retryBase = 20 * time.Millisecond
	retryCap  = time.Second
)

// caller asks questions that change nothing, so each may be asked again until it is answered: many at a time over one
// lane.
type caller struct {
	link *link.Link
	rng  *backoff.Rand
	wg   sync.WaitGroup
	// lends: bodies come from those that were given back, and those who wait for answers give them back.
	lends bool

	mu   sync.Mutex
	lane *requestLane
}

// requestLane is one lane with what waits for answers on it.
type requestLane struct {
	conn  *link.Conn
	lane  *session.Lane
	lends bool

	mu      sync.Mutex
	next    uint64
	pending map[uint64]waiter
	err     error // why the lane is of no more use
}

// waiter takes the answer to what it has asked, in the goroutine that reads the lane, which must not wait for it.
type waiter interface {
	answer(l *requestLane, r reply)
}

// oneReply waits for one answer.
type oneReply chan reply

func (c oneReply) answer(_ *requestLane, r reply) { c <- r }

type reply struct {
	head wire.Header
	body []byte
	err  error
}

// keepBody is the largest body that is lent again.
const keepBody = 1 << 20

var bodies = sync.Pool{New: func() any { return new([]byte) }}

func getBody() []byte { return *bodies.Get().(*[]byte) }

// putBody takes a body back that nothing aliases any more.
func putBody(b []byte) {
	if cap(b) > 0 && cap(b) <= keepBody {
		bodies.Put(&b)
	}
}

func newCaller(l *link.Link, rng *backoff.Rand) *caller { return &caller{link: l, rng: rng} }

func (c *caller) wait() { c.wg.Wait() }

// call asks until it gets an answer or an error that asking again does not change. ctx has a deadline.
func (c *caller) call(ctx context.Context, request, answer wire.Frame) *Error {
	wait := backoff.Backoff{Rand: c.rng, Base: retryBase, Cap: retryCap}
	for {
		err := c.once(ctx, request, answer)
		if err == nil || err.Class == Fatal {
			return err
		}
		if !backoff.Pause(ctx, max(wait.Next(), err.RetryAfter)) {
			out := *err
			out.Class = Refused // a question changes nothing
			return &out
		}
	}
}

func (c *caller) once(ctx context.Context, request, answer wire.Frame) *Error {
	l, err := c.open(ctx)
	if err != nil {
		return code.From(err)
	}
	r := l.ask(ctx, request)
	if r.err != nil {
		return code.From(r.err)
	}
	if r.head.Type != answer.Type() {
		return code.New(code.Protocol, "%s answered with %s", request.Type(), r.head.Type)
	}
	if err := wire.ParseFrame(r.head, answer, r.body); err != nil {
		return code.New(code.Protocol, "%s: %w", request.Type(), err)
	}
	return nil
}

// open returns the lane in use, or opens one.
func (c *caller) open(ctx context.Context) (*requestLane, error) {
	conn, err := c.link.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	l := c.lane
	c.mu.Unlock()
	if l.usable(conn) {
		return l, nil
	}
	lane, err := conn.OpenLane(ctx)
	if err != nil {
		return nil, unavailable("open lane", err)
	}
	l = &requestLane{conn: conn, lane: lane, pending: map[uint64]waiter{}, lends: c.lends}
	c.wg.Go(l.read)
	c.mu.Lock()
	// Two may open one at the same time: the second stays in use, the first serves its caller and ends with its
	// connection.
	c.lane = l
	c.mu.Unlock()
	return l, nil
}

// ready returns the lane in use, nil when one is to be opened.
func (c *caller) ready() *requestLane {
	c.mu.Lock()
	l := c.lane
	c.mu.Unlock()
	if l == nil || !l.working() || l.conn.Draining() {
		return nil
	}
	return l
}

// usable reports whether the lane works and is of the connection: not of one that the broker said goodbye on.
func (l *requestLane) usable(conn *link.Conn) bool {
	return l != nil && l.conn == conn && l.working()
}

func (l *requestLane) working() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil
}

func (l *requestLane) ask(ctx context.Context, request wire.Frame) reply {
	ch := make(oneReply, 1)
	if err := l.post(request, ch); err != nil {
		return reply{err: err}
	}
	select {
	case r := <-ch:
		return r
	case <-ctx.Done():
		l.forget(ch)
		return reply{err: ended(ctx, Refused, "%s", request.Type())}
	}
}

// post sends a request whose answer goes to w, exactly once unless post fails or it is forgotten. It never waits.
func (l *requestLane) post(request wire.Frame, w waiter) error {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return l.err
	}
	l.next++
	corr := l.next
	l.pending[corr] = w
	l.mu.Unlock()
	if err := l.lane.SendFrame(corr, request); err != nil && l.forget(w) {
		return unavailable("send "+request.Type().String(), err)
	}
	return nil
}

// forget takes back the wait for an answer. It reports false when that has come.
func (l *requestLane) forget(w waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for corr, other := range l.pending {
		if other == w {
			delete(l.pending, corr)
			return true
		}
	}
	return false
}

// read passes answers to those who wait, until the lane ends.
func (l *requestLane) read() {
	err := l.readAll()
	l.mu.Lock()
	l.err = unavailable("the connection was lost", err)
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, w := range pending {
		w.answer(l, reply{err: l.err})
	}
	l.lane.Reset(code.Cancelled)
}

func (l *requestLane) readAll() error {
	for {
		var buf []byte
		if l.lends {
			buf = getBody()
		}
		h, body, err := frames.Read(l.lane, buf)
		if err != nil {
			return err
		}
		r := reply{head: h, body: body}
		if h.Type == wire.TypeError {
			var e wire.Error
			if err := e.Parse(body); err != nil {
				return err
			}
			if h.Corr == 0 {
				return e.Err() // about the lane as a whole
			}
			r.err = e.Err()
		}
		l.mu.Lock()
		w := l.pending[h.Corr]
		delete(l.pending, h.Corr)
		l.mu.Unlock()
		if w != nil {
			w.answer(l, r)
		}
	}
}
