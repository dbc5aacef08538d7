// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/wire/session/sessiontest"
)

// QU-01: a settlement that comes late, behind the deadline, takes nothing away from who has the message now, and touches no
// other.
func TestLateSettlements(t *testing.T) {
	cfg := client.GroupConfig{AckWait: time.Second, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Millisecond}}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a", client.MaxInFlight(3))
		w.push("acked", "nacked", "rejected")
		late := a.nextN(3)
		b := w.consume("b")
		if err := w.g.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the claims end, and nobody is handed them yet
		w.lost("a late ack", late[0].Ack(t.Context()))
		w.lost("a late extension", late[1].Extend(t.Context(), time.Minute))
		if err := w.g.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := map[string]*client.Message{}
		for range 20 {
			for _, k := range []*worker{a, b} {
				if m := k.take(20 * time.Millisecond); m != nil {
					now[string(m.Value)] = m
				}
			}
		}
		if len(now) != 3 {
			t.Fatalf("%d of 3 messages came again", len(now))
		}
		w.lost("a late nack", late[1].Nack(t.Context(), 0))
		w.lost("a late reject", late[2].Reject(t.Context(), "late"))
		for _, m := range late {
			again := now[string(m.Value)]
			w.is(again, string(m.Value), 2)
			if again.Fence().Compare(m.Fence()) <= 0 {
				t.Errorf("%s has %+v, and had %+v before", m.ID(), again.Fence(), m.Fence())
			}
			w.ack(again)
		}
		a.nothing(5 * time.Second)
		b.nothing(time.Second)
		if i := w.info(); i.Totals.Acked != 3 || i.Dead != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// QU-01: the same over a restart of the broker: who has the message from the leader before may ack it until it is handed out
// again, and not from then on.
func TestClaimsOverARestart(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		a := w.consume("a", client.MaxInFlight(2))
		w.push("1", "2")
		before := a.nextN(2)
		w.kill()
		w.eventually("the messages to be handed out again", func() bool { return w.info().InFlight == 2 })
		b := a.nextN(2)
		for i := range b {
			w.is(b[i], string(before[i].Value), 1) // a failover counts nothing
			w.lost("an ack of a claim from before", before[i].Ack(t.Context()))
		}
		w.ack(b...)

		// With nobody else there, and paused, it is not handed out again: the work was done, and is not done twice.
		w.push("3")
		m := a.next()
		if err := w.g.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.ack(m)
		if err := w.g.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.nothing(time.Minute)
		if i := w.info(); i.Totals.Acked != 3 {
			t.Errorf("%+v", i)
		}
	})
}

// QU-10: a message that is handed to a consumer just when that leaves goes to another one at once, and counts no attempt.
func TestMessageForAConsumerThatLeaves(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		rng := w.b.Rand("leaving")
		for round := range 100 {
			a := w.consume("a", client.MaxInFlight(1))
			ctx, cancel := context.WithCancel(t.Context())
			polled := make(chan *client.Message, 1)
			go func() {
				for m := range a.Messages(ctx) {
					polled <- m
					return
				}
			}()
			time.Sleep(time.Second)
			pushed := make(chan struct{})
			go func() {
				defer close(pushed)
				w.push("m")
			}()
			time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
			cancel()
			m := <-polled
			a.Close()
			<-pushed
			b := w.consume("b")
			if got := b.take(soon); got == nil {
				t.Fatalf("round %d: the message did not come to b; a had got %v", round, m)
			} else if w.ack(got); got.Attempt != 1 {
				t.Fatalf("round %d: attempt %d", round, got.Attempt)
			}
			b.Close()
		}
	})
}

// QU-13: what was acked of ten is that and no more, and the rest comes back once each when the consumer goes.
func TestPartialAcks(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.pushN(10)
		all := a.nextN(10)
		w.ack(all[2], all[6])
		w.ack(all[2]) // the same once more has the same answer
		w.lost("a nack behind an ack", all[2].Nack(t.Context(), 0))
		w.nack(all[4], 2*time.Second)
		a.Close()
		b := w.consume("b")
		w.are(b.rest(5*time.Second), "1", "2", "4", "5", "6", "8", "9", "10")
		if i := w.info(); i.Totals.Acked != 10 || i.Totals.FailedAttempts != 1 {
			t.Errorf("%+v", i.Totals)
		}
	})
}

// QU-13: an ack whose answer is lost with the connection is sent again, and counts once.
func TestAckWhoseAnswerIsLost(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.pushN(20)
		var acks []*client.Settlement
		for _, m := range a.nextN(20) {
			acks = append(acks, m.AckAsync())
		}
		w.n.Kill()
		w.n.Boot()
		for _, s := range acks {
			if err := s.Wait(t.Context()); err != nil {
				// It came behind a new hand-out: then whoever has that settles it.
				w.lost("an ack that is sent again", err)
			}
		}
		a.rest(5 * time.Second)
		if i := w.info(); i.Totals.Acked != 20 || i.Ready+i.InFlight+i.Delayed+i.Dead != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// QU-15: who leaves in order takes nothing along: others have it at once, uncounted.
func TestLeavingGivesBackAtOnce(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: 10 * time.Minute}, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.pushN(5)
		a.nextN(5)
		b := w.consume("b")
		a.Close()
		got := b.nextN(5)
		for _, m := range got {
			if m.Attempt != 1 {
				t.Errorf("%s comes at attempt %d: leaving is none", m.ID(), m.Attempt)
			}
		}
		w.ack(got...)
		if i := w.info(); len(i.Consumers) != 1 || i.InFlight != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// QU-15, QU-03: what a consumer had that is cut off comes to others once its connection is given up, and of that only what it
// worked on counts as an attempt.
func TestLostConsumer(t *testing.T) {
	if sessiontest.Transport() == "tls" {
		t.Skip("the path of TCP is not cut in a bubble")
	}
	run(t, nil, client.GroupConfig{AckWait: 10 * time.Minute}, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.pushN(5)
		a.next() // it works on the first, and has the others with it
		b := w.consume("b")
		w.b.Network.CutOff(a.host)
		attempts := map[string]int{}
		for range 5 {
			m := b.take(time.Minute)
			if m == nil {
				t.Fatalf("%d messages came within a minute: %+v", len(attempts), w.info())
			}
			attempts[string(m.Value)] = m.Attempt
			w.ack(m)
		}
		if attempts["1"] != 2 || attempts["2"] != 1 || attempts["5"] != 1 {
			t.Errorf("attempts %v: the first was tried, the others were not", attempts)
		}
		w.b.Network.Heal()
	})
}

// QU-16: a group whose consumers all let their messages time out goes on, also when most of them die then.
func TestEverybodyTimedOut(t *testing.T) {
	cfg := client.GroupConfig{AckWait: 2 * time.Second, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Millisecond}, OrderByKey: true}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		var all []*worker
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, w.consume(name, client.MaxInFlight(1)))
		}
		for _, key := range []string{"x", "y", "z"} {
			for range 3 {
				w.pushRecord(client.Record{Key: []byte(key), Value: []byte(key)})
			}
		}
		for _, k := range all {
			k.next() // and lets it be
		}
		time.Sleep(4 * time.Second)
		w.b.Network.CutOff(all[0].host)
		w.b.Network.CutOff(all[1].host)
		for range 9 {
			m := all[2].take(time.Minute)
			if m == nil {
				t.Fatalf("nothing came to the one that is left: %+v", w.info())
			}
			w.ack(m)
		}
		if i := w.info(); i.Totals.Acked != 9 {
			t.Errorf("%+v", i)
		}
		w.b.Network.Heal()
	})
}
