// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/bubble"
	"margay.dev/wire/control"
	"margay.dev/wire/session/sessiontest"
)

// soon is how long a message takes to come that is there, in virtual time.
const soon = time.Second

// world is a node with one queue, q, whose group g is made by a test.
type world struct {
	t *testing.T
	b *bubble.Bubble
	n *bubble.Node
	c *client.Client
	q *client.Queue
	g *client.Group
}

// run runs a test in a bubble. The spec may be nil.
func run(t *testing.T, spec *control.QueueSpec, cfg client.GroupConfig, test func(t *testing.T, w *world)) {
	t.Helper()
	bubble.Run(t, 1, func(t *testing.T, b *bubble.Bubble) {
		n := b.Start()
		if sessiontest.Transport() == "tls" {
			n.OverTLS()
		}
		own := control.QueueSpec{}
		if spec != nil {
			own = *spec
		}
		own.Name = "q"
		if _, err := n.API().CreateQueue(t.Context(), control.DefaultTenant, control.DefaultNamespace, own); err != nil {
			t.Fatal(err)
		}
		c := n.Connect()
		w := &world{t: t, b: b, n: n, c: c, q: c.Queue("q")}
		w.g = w.q.Group("g")
		if err := w.g.Ensure(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		test(t, w)
	})
}

// push stores messages of these bodies.
func (w *world) push(bodies ...string) (ids []client.MessageID) {
	w.t.Helper()
	for _, body := range bodies {
		ids = append(ids, w.pushRecord(client.Record{Value: []byte(body)}))
	}
	return ids
}

func (w *world) pushRecord(rec client.Record, opts ...client.RecordOption) client.MessageID {
	w.t.Helper()
	ack, err := w.q.Push(w.t.Context(), rec, opts...)
	if err != nil {
		w.t.Fatalf("push %q: %v", rec.Value, err)
	}
	return client.MessageID{Shard: ack.Shard, Offset: ack.Offset}
}

// pushN stores so many messages whose bodies are their numbers, from 1 on.
func (w *world) pushN(n int) {
	w.t.Helper()
	for i := range n {
		w.q.PushAsync(w.t.Context(), client.Record{Value: fmt.Append(nil, i+1)})
	}
	if err := w.q.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// restart stops the node in order and starts it again; kill ends its process first.
func (w *world) restart() { w.n.Stop(); w.n.Boot() }
func (w *world) kill()    { w.n.Kill(); w.n.Boot() }

func (w *world) info() *client.GroupInfo {
	w.t.Helper()
	i, err := w.g.Info(w.t.Context(), client.Counted())
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// dead lists the dead letters.
func (w *world) dead() (all []*client.QueueRecord) {
	w.t.Helper()
	for m, err := range w.g.DeadLetters(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// worker is a consumer on a host of its own.
type worker struct {
	*client.Consumer

	w    *world
	host netip.Addr
	c    *client.Client
}

// consume makes a consumer of g.
func (w *world) consume(name string, opts ...client.ConsumeOption) *worker {
	w.t.Helper()
	host := w.b.Network.NewHost()
	c := w.n.ConnectFrom(host)
	g, err := c.Queue("q").Consume(w.t.Context(), "g", append(opts, client.ConsumerName(name))...)
	if err != nil {
		w.t.Fatalf("consume as %s: %v", name, err)
	}
	w.t.Cleanup(g.Close)
	return &worker{g, w, host, c}
}

// take waits for the next message at most so long, nil for none.
func (k *worker) take(d time.Duration) *client.Message {
	k.w.t.Helper()
	ctx, cancel := context.WithTimeout(k.w.t.Context(), d)
	defer cancel()
	for m, err := range k.Messages(ctx) {
		if err != nil && ctx.Err() == nil {
			k.w.t.Fatal(err)
		}
		return m
	}
	return nil
}

// next is the next message, which must come soon.
func (k *worker) next() *client.Message {
	k.w.t.Helper()
	m := k.take(soon)
	if m == nil {
		k.w.t.Fatalf("no message within %v: %+v", soon, k.w.info())
	}
	return m
}

// nextN are the next messages.
func (k *worker) nextN(n int) (all []*client.Message) {
	k.w.t.Helper()
	for range n {
		all = append(all, k.next())
	}
	return all
}

// nothing demands that no message comes for so long.
func (k *worker) nothing(d time.Duration) {
	k.w.t.Helper()
	if m := k.take(d); m != nil {
		k.w.t.Fatalf("message %s, %q, came at attempt %d: nothing was to", m.ID(), m.Value, m.Attempt)
	}
}

// rest takes and acks all that comes until nothing has for a while, and returns the bodies.
func (k *worker) rest(quiet time.Duration) (bodies []string) {
	k.w.t.Helper()
	for m := k.take(quiet); m != nil; m = k.take(quiet) {
		bodies = append(bodies, string(m.Value))
		k.w.ack(m)
	}
	return bodies
}

func (w *world) ack(all ...*client.Message) {
	w.t.Helper()
	for _, m := range all {
		if err := m.Ack(w.t.Context()); err != nil {
			w.t.Fatalf("ack %q: %v", m.Value, err)
		}
	}
}

func (w *world) nack(m *client.Message, after time.Duration) {
	w.t.Helper()
	if err := m.Nack(w.t.Context(), after); err != nil {
		w.t.Fatalf("nack %q: %v", m.Value, err)
	}
}

// lost demands that something was refused because the claim has ended.
func (w *world) lost(what string, err error) {
	w.t.Helper()
	if !errors.Is(err, client.ErrNoLongerOwner) {
		w.t.Errorf("%s: %v, want that it is no longer the owner's", what, err)
	}
}

// is demands what a message is.
func (w *world) is(m *client.Message, body string, attempt int) {
	w.t.Helper()
	if string(m.Value) != body || m.Attempt != attempt {
		w.t.Fatalf("got %q at attempt %d, want %q at attempt %d", m.Value, m.Attempt, body, attempt)
	}
}

// are demands which bodies came, in any order.
func (w *world) are(got []string, want ...string) {
	w.t.Helper()
	got = slices.Clone(got)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Fatalf("got %q, want %q", got, want)
	}
}

// eventually waits, in virtual time, for a condition.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited 10 minutes for %s: %+v", what, w.info())
		}
	}
}

// numbers are the bodies of messages that pushN made.
func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}
