// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/admin"
)

const (
	queueName, groupName = "jobs", "workers"

	queuePushed = 20
	queueAcked  = 5 // the first ones; then one that failed, one that is dead, one that is delayed
)

// heldQueue is how a fixture's queue stood.
type heldQueue struct {
	Totals client.GroupTotals `json:"totals"`
	Dead   uint64             `json:"dead"`
}

// makeQueue leaves a queue with a group that has settled some messages, failed at one, given up one, and waits for one.
func makeQueue(ctx context.Context, t *testing.T, api *admin.Client, c *client.Client) *heldQueue {
	t.Helper()
	if _, err := api.EnsureQueue(ctx, admin.QueueSpec{Name: queueName}); err != nil {
		t.Fatal(err)
	}
	q := c.Queue(queueName)
	for i := range queuePushed {
		rec := client.Record{Key: fmt.Appendf(nil, "k%d", i%3), Value: fmt.Appendf(nil, "job %d", i)}
		if i == queueAcked+2 {
			rec.Delay = 10 * 365 * 24 * time.Hour
		}
		if _, err := q.Push(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	g, err := q.Consume(ctx, groupName, client.MaxInFlight(queueAcked+2))
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range g.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Offset < queueAcked:
			err = m.Ack(ctx)
		case m.Offset == queueAcked:
			err = m.Nack(ctx, time.Second)
		default:
			err = m.Reject(ctx, "poison")
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.Offset > queueAcked {
			break
		}
	}
	g.Close()
	info, err := q.Group(groupName).Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &heldQueue{Totals: info.Totals, Dead: info.Dead}
}

// queue demands that a group goes on where it stood: what is settled does not come back, ended attempts count, the dead
// letter is one, and what is delayed is.
func queue(ctx context.Context, t *testing.T, c *client.Client, want *heldQueue) {
	t.Helper()
	if want == nil { // a release of before there were queues
		return
	}
	q := c.Queue(queueName)
	info, err := q.Group(groupName).Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Totals != want.Totals || info.Dead != want.Dead || want.Dead != 1 {
		t.Errorf("the group stands at %+v with %d dead letters, stood at %+v with %d", info.Totals, info.Dead, want.Totals, want.Dead)
	}
	g, err := q.Consume(ctx, groupName, client.MustExist())
	if err != nil {
		t.Fatal(err)
	}
	attempts := map[uint64]int{}
	for m, err := range g.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(m.Value), fmt.Sprintf("job %d", m.Offset); got != want {
			t.Errorf("message %d is %q, was %q", m.Offset, got, want)
		}
		attempts[m.Offset] = m.Attempt
		if err := m.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if len(attempts) == queuePushed-queueAcked-2 {
			break
		}
	}
	for offset := range uint64(queuePushed) {
		want := 1
		switch offset {
		case queueAcked:
			want = 2
		case queueAcked + 1, queueAcked + 2:
			want = 0
		}
		if offset < queueAcked {
			want = 0
		}
		if attempts[offset] != want {
			t.Errorf("message %d was handed out as attempt %d, want %d", offset, attempts[offset], want)
		}
	}
	g.Close()
	if info, err = q.Group(groupName).Info(ctx, client.Counted()); err != nil || info.Delayed != 1 || info.Ready != 0 {
		t.Errorf("in the end it is %+v, %v", info, err)
	}
}
