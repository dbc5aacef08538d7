// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// rejection is RejectMessage's.
type rejection struct{ err error }

func (r *rejection) Error() string { return "reject: " + r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

// RejectMessage makes, returned by a handler, the message a dead letter at once, with the text of err as the reason.
func RejectMessage(err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return &rejection{err}
}

// retry is RetryAfter's.
type retry struct {
	after time.Duration
	err   error
}

func (r *retry) Error() string { return fmt.Sprintf("retry after %v: %v", r.after, r.err) }
func (r *retry) Unwrap() error { return r.err }

// RetryAfter lets, returned by a handler, the message come again after a while, whatever the group's backoff says.
func RetryAfter(after time.Duration, err error) error {
	if err == nil {
		err = errors.New("retried")
	}
	return &retry{after, err}
}

// Handle calls fn for each message, n at a time, until ctx ends or the consumer does; it returns why, once every call has
// returned. What fn returns settles the message: nil acks it, an error nacks it by the group's backoff, RejectMessage and
// RetryAfter say otherwise, and a panic is an error, logged with its stack. What fn has settled itself stays as it is.
//
// While fn works, the claim is extended at half of the group's ack wait. The context that fn gets ends with ctx, with Close, and
// when the claim is lost: then its cause (context.Cause) is ErrNoLongerOwner, and somebody else may have the message. A call that
// fails because ctx has ended counts as no attempt.
//
// A broker that was started again hands out anew what is in work. Handed out to this consumer, as it mostly is, that is no second
// call: the one that is under way goes on, under the new claim.
//
// n should not exceed MaxInFlight. When it is more than the consumer had been set up for, and nothing is in work, the consumer
// joins anew to say so: brokers count no more attempts than that when the process dies. Concurrency sets it up from the beginning.
func (g *Consumer) Handle(ctx context.Context, n int, fn func(ctx context.Context, m *Message) error) error {
	if n < 1 || fn == nil {
		return code.New(code.BadRequest, "handle %s: %d handlers, or none that can be called", g.q.name, n)
	}
	g.prepare(n)
	work, cancel := joinContexts(ctx, g.ctx)
	defer cancel()
	h := &handler{g: g, ctx: work, asked: ctx, fn: fn, active: map[*Message]*call{}}
	g.mu.Lock()
	g.handlers[h] = struct{}{}
	g.mu.Unlock()
	var workers, extender sync.WaitGroup
	stop := make(chan struct{})
	extender.Go(func() { h.keepClaims(stop) })
	why := make([]*Error, n)
	for i := range n {
		workers.Go(func() { why[i] = h.work(ctx) })
	}
	workers.Wait()
	g.mu.Lock()
	delete(g.handlers, h)
	g.mu.Unlock()
	close(stop)
	extender.Wait()
	return why[0]
}

// prepare lets the lanes say that n messages are worked on at a time.
func (g *Consumer) prepare(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n <= g.concurrency {
		return
	}
	g.concurrency = n
	if g.out > 0 {
		return // left, the lane would give back what is in work
	}
	for l := range g.lanes {
		if l.concurrency < n {
			l.leave(time.Now().Add(closeWait))
		}
	}
}

// handler is one Handle.
type handler struct {
	g          *Consumer
	ctx, asked context.Context //nolint:containedctx // of the calls: both live as long as Handle
	fn         func(context.Context, *Message) error

	mu     sync.Mutex
	active map[*Message]*call
}

// call is one call of fn.
type call struct {
	cancel    context.CancelCauseFunc
	extending bool
}

func (h *handler) work(ctx context.Context) *Error {
	for {
		m, err := h.g.next(ctx)
		if err != nil {
			return err
		}
		h.one(m)
	}
}

func (h *handler) one(m *Message) {
	ctx, cancel := context.WithCancelCause(h.ctx)
	h.mu.Lock()
	h.active[m] = &call{cancel: cancel}
	h.mu.Unlock()
	err := h.call(ctx, m)
	h.mu.Lock()
	delete(h.active, m)
	h.mu.Unlock()
	cancel(nil)
	h.settle(m, err)
}

func (h *handler) call(ctx context.Context, m *Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			h.g.c.cfg.logger.Error("the handler of a message panicked", "queue", h.g.q.name, "group", h.g.group, "message", m.ID().String(),
				"attempt", m.Attempt, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return h.fn(ctx, m)
}

// settle does what the handler's error says. Nobody waits for the answer: the next message can be worked on meanwhile.
func (h *handler) settle(m *Message, err error) {
	if m.Settled() {
		return
	}
	if err == nil {
		m.AckAsync()
		return
	}
	if r, ok := errors.AsType[*rejection](err); ok {
		m.RejectAsync(r.err.Error())
		return
	}
	if h.asked.Err() != nil && errors.Is(err, h.asked.Err()) {
		m.settle(wire.SettleRelease, 0, "") // it was told to stop
		return
	}
	after := time.Duration(0)
	if r, ok := errors.AsType[*retry](err); ok {
		after, err = r.after, r.err
	}
	if s := m.NackAsync(after, err.Error()); s.err != nil && s.err.Code == code.BadRequest {
		m.NackAsync(0, err.Error()) // RetryAfter with a time that there is not
	}
}

// keepClaims extends the claims of what is in work when half of them is over.
func (h *handler) keepClaims(stop <-chan struct{}) {
	timer := time.NewTimer(h.extend(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(h.extend(time.Now()))
		case <-stop:
			return
		}
	}
}

// extend extends what is due and returns when to look again.
func (h *handler) extend(now time.Time) time.Duration {
	h.mu.Lock()
	active, asked := make([]*Message, 0, len(h.active)), map[*Message]uint64{}
	for m, c := range h.active {
		if !c.extending {
			active = append(active, m)
		}
	}
	h.mu.Unlock()
	h.g.mu.Lock() // comes before h.mu
	half := h.g.ackWait / 2
	active = slices.DeleteFunc(active, func(m *Message) bool {
		if left := m.until().Sub(now); m.op != 0 || left > half || m.awaited(now, left) {
			return true
		}
		asked[m] = m.handOut
		return false
	})
	h.g.mu.Unlock()
	for _, m := range active {
		h.mu.Lock()
		c := h.active[m]
		if c != nil {
			c.extending = true
		}
		h.mu.Unlock()
		if c != nil {
			m.extend(0, true, func(err *Error) {
				if m.handOut != asked[m] {
					err = nil // it was handed out here again meanwhile
				}
				h.extended(m, err)
			})
		}
	}
	return max(half/8, time.Millisecond)
}

// extended hears what became of an extension. What failed otherwise than for good is tried again with the next look.
func (h *handler) extended(m *Message, err *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.active[m]
	if c == nil {
		return
	}
	c.extending = false
	if err != nil && err.Code == code.NoLongerOwner {
		c.cancel(err)
	}
}
