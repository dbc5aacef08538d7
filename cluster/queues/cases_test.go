// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/wire/control"
)

// QU-02: attempts are counted over an end of the process, a stop and a power cut: the third is the last, and the dead letter
// says so.
func TestAttemptsAreNotForgotten(t *testing.T) {
	cfg := client.GroupConfig{MaxAttempts: 3, Backoff: []time.Duration{5 * time.Second}} // it is not out when the process ends
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.push("poison")
		for i, end := range []func(){w.kill, w.restart, func() { w.n.PowerCut(nil); w.n.Boot() }} {
			m := a.take(time.Minute)
			if m == nil {
				t.Fatalf("attempt %d does not come: %+v", i+1, w.info())
			}
			w.is(m, "poison", i+1)
			w.nack(m, 0)
			end()
		}
		a.nothing(time.Minute)
		dead := w.dead()
		if len(dead) != 1 || dead[0].Attempts != 3 || dead[0].Reason != client.DeadAttempts || string(dead[0].Value) != "poison" {
			t.Fatalf("dead letters %+v", dead)
		}
	})
}

// QU-07: delays, of a push and of a nack, hold over an end of the process: nothing is early, what fell due meanwhile comes at
// once, and the rest on time.
func TestDelaysOverRestarts(t *testing.T) {
	run(t, nil, client.GroupConfig{}, func(t *testing.T, w *world) {
		a := w.consume("a")
		began := time.Now()
		due := map[string]time.Duration{}
		for _, s := range []int{5, 20, 60} {
			body := fmt.Sprint("push ", s)
			w.pushRecord(client.Record{Value: []byte(body)}, client.Delay(time.Duration(s)*time.Second))
			due[body] = time.Duration(s) * time.Second
			w.push(fmt.Sprint("nack ", s))
			w.nack(a.next(), time.Duration(s)*time.Second)
			due[fmt.Sprint("nack ", s)] = time.Duration(s) * time.Second
		}
		time.Sleep(3*time.Second - time.Since(began))
		w.n.Kill()
		time.Sleep(10*time.Second - time.Since(began))
		w.n.Boot()
		for range due {
			m := a.take(2 * time.Minute)
			if m == nil {
				t.Fatalf("a message is lost: %+v", w.info())
			}
			at, body := time.Since(began), string(m.Value)
			latest := max(due[body], 10*time.Second) + 5*time.Second // the client finds the node again within that
			if due[body] > 15*time.Second {
				latest = due[body] + time.Second
			}
			if at < due[body] || at > latest {
				t.Errorf("%s came after %v, want it between %v and %v", body, at, due[body], latest)
			}
			w.ack(m)
		}
	})
}

// QU-08: what falls due comes to a consumer that waits, without anything else that would wake it.
func TestDueMessagesWakeConsumers(t *testing.T) {
	cfg := client.GroupConfig{AckWait: 3 * time.Second, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Millisecond}}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a", client.MaxInFlight(1))
		on := func(what string) *client.Message {
			t.Helper()
			began := time.Now()
			m := a.take(30 * time.Second)
			if m == nil {
				t.Fatalf("%s: nothing came within 30 s", what)
			}
			if took := time.Since(began); took < 2900*time.Millisecond || took > 4*time.Second {
				t.Fatalf("%s: it came after %v, want 3 s", what, took)
			}
			return m
		}
		for range 50 {
			w.pushRecord(client.Record{Value: []byte("m")}, client.Delay(3*time.Second))
			m := on("a delay")
			w.nack(m, 3*time.Second)
			on("a nack")
			w.ack(on("a claim that has ended"))
		}
	})
}

// QU-09: delays that cannot be are refused with their limit, the others are kept, and none makes a message come at once; the
// connection goes on.
func TestOddDelays(t *testing.T) {
	run(t, nil, client.GroupConfig{}, func(t *testing.T, w *world) {
		a := w.consume("a")
		for _, d := range []time.Duration{
			-1, 24*time.Hour + time.Millisecond, 1 << 31 * time.Millisecond, 1 << 32 * time.Millisecond, 1 << 53 * time.Microsecond, math.MaxInt64,
		} {
			_, err := w.q.Push(t.Context(), client.Record{Value: []byte("later")}, client.Delay(d))
			if d < 0 && err == nil {
				t.Errorf("a delay of %v is taken", d)
			}
			if e := client.AsError(err); err != nil && (e == nil || !strings.Contains(e.Error(), "delay")) {
				t.Errorf("a delay of %v: %v, want an error that names it", d, err)
			}
			a.nothing(time.Second)
		}
		if _, err := w.q.Push(t.Context(), client.Record{Value: []byte("x")}, client.Delay(time.Second), client.TTL(time.Second)); err == nil {
			t.Error("a message is taken that ends before it is due")
		}
		for _, d := range []time.Duration{0, time.Millisecond} {
			w.pushRecord(client.Record{Value: []byte("now")}, client.Delay(d))
			w.ack(a.next())
		}
	})
}

// QU-12: a group that retention passes goes on at what is left, its loss is counted, and what was out is answered for.
func TestTrimUnderAGroup(t *testing.T) {
	run(t, &control.QueueSpec{Keep: new(control.KeepAll)}, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		a := w.consume("a", client.MaxInFlight(5))
		w.pushN(105)
		out := a.nextN(5)
		if _, err := w.c.Trim(t.Context(), "q", client.TrimBeforeOffset(0, 80)); err != nil {
			t.Fatal(err)
		}
		for _, m := range out {
			w.lost("an ack of what is gone", m.Ack(t.Context()))
		}
		w.are(a.rest(5*time.Second), numbers(81, 105)...)
		w.restart()
		a.nothing(10 * time.Second)
		if i := w.info(); i.Totals.Lost != 80 || i.Totals.Acked != 25 || i.Ready+i.InFlight+i.Delayed != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// QU-14: what was acked, in whatever order, does not come again after the end of the process; the one that was not, does; and
// what the group remembers of it is bounded.
func TestAcksOutliveAKill(t *testing.T) {
	run(t, nil, client.GroupConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		const n = 1000
		a := w.consume("a", client.MaxInFlight(n))
		w.pushN(n)
		all := a.nextN(n)
		slices.SortStableFunc(all, func(x, y *client.Message) int { return int(y.Offset%2) - int(x.Offset%2) }) // odd ones first
		var acks []*client.Settlement
		for _, m := range all {
			if string(m.Value) != "1" {
				acks = append(acks, m.AckAsync())
			}
		}
		for _, s := range acks {
			if err := s.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.kill()
		w.are(a.rest(time.Minute), "1")
		if i := w.info(); i.Totals.Acked != n {
			t.Errorf("%+v", i.Totals)
		}
	})
}

// QU-17: with an order by key, what comes behind a message is not handed out before that is settled, whoever nacks, comes and
// goes.
func TestKeyOrderOverRedelivery(t *testing.T) {
	cfg := client.GroupConfig{AckWait: time.Hour, OrderByKey: true, Backoff: []time.Duration{2 * time.Second}}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a")
		for i := range 10 {
			w.pushRecord(client.Record{Key: []byte("k"), Value: fmt.Append(nil, i+1)})
		}
		w.ack(a.next())
		w.ack(a.next())
		m := a.next()
		w.is(m, "3", 1)
		w.nack(m, 0)
		b := w.consume("b")
		a.Close()
		b.nothing(time.Second)
		for i := 3; i <= 10; i++ {
			m := b.take(5 * time.Second)
			if m == nil || string(m.Value) != fmt.Sprint(i) {
				t.Fatalf("got %v, want %d", m, i)
			}
			b.nothing(100 * time.Millisecond)
			w.ack(m)
		}
	})
}

// QU-18: a message that is nacked again and again comes as often as the backoff says, and those behind it flow.
func TestNackLoop(t *testing.T) {
	cfg := client.GroupConfig{MaxAttempts: client.Unlimited, Backoff: []time.Duration{100 * time.Millisecond, time.Second}}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a")
		w.push("poison")
		w.pushN(1000)
		tries, healthy := 0, 0
		for began := time.Now(); time.Since(began) < time.Minute; {
			m := a.take(time.Second)
			switch {
			case m == nil:
			case string(m.Value) == "poison":
				tries++
				m.NackAsync(0, "no")
			default:
				healthy++
				m.AckAsync()
			}
		}
		if healthy != 1000 || tries < 50 || tries > 65 {
			t.Errorf("%d of 1000 came, and the other one %d times", healthy, tries)
		}
	})
}

// QU-20: a message of the largest size becomes a dead letter with its own bytes, the reason is cut, and it can be redriven.
func TestLargestDeadLetter(t *testing.T) {
	run(t, nil, client.GroupConfig{MaxAttempts: 1}, func(t *testing.T, w *world) {
		a := w.consume("a")
		value := bytes.Repeat([]byte("x"), 1<<20-2048)
		w.pushRecord(client.Record{Key: bytes.Repeat([]byte("k"), 512), Value: value, Headers: []client.Header{{Key: "h", Value: make([]byte, 512)}}})
		m := a.take(time.Minute)
		if err := m.NackAsync(0, strings.Repeat("why ", 1024)).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		dead := w.dead()
		if len(dead) != 1 || !bytes.Equal(dead[0].Value, value) || len(dead[0].Error) > 256 || !strings.HasPrefix(dead[0].Error, "why why") {
			t.Fatalf("%d dead letters", len(dead))
		}
		if n, err := w.g.Redrive(t.Context(), client.RedriveOptions{}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		m = a.take(time.Minute)
		if m == nil || m.Attempt != 1 || !bytes.Equal(m.Value, value) {
			t.Fatal("it is not the same")
		}
		w.ack(m)
	})
}

// QU-19: whatever becomes of messages, and whatever ends meanwhile, what is there and what has come to its end is what was pushed.
func TestNumbersAddUp(t *testing.T) {
	cfg := client.GroupConfig{AckWait: time.Minute, MaxAttempts: 2, Backoff: []time.Duration{10 * time.Minute}}
	run(t, nil, cfg, func(t *testing.T, w *world) {
		a := w.consume("a", client.MaxInFlight(8))
		pushed := uint64(0)
		check := func(when string, want client.GroupInfo) {
			t.Helper()
			i := w.info()
			s := i.Totals
			sum := i.Ready + i.Delayed + i.InFlight + i.Dead + s.Acked + s.Expired + s.Cancelled + s.Lost + s.Discarded
			if sum != pushed || !i.Exact {
				t.Errorf("%s: %d of %d messages are accounted for: %+v", when, sum, pushed, i)
			}
			if i.Ready != want.Ready || i.Delayed != want.Delayed || i.InFlight != want.InFlight || i.Dead != want.Dead {
				t.Errorf("%s: %d ready, %d delayed, %d in flight, %d dead, want %d, %d, %d, %d", when, i.Ready, i.Delayed, i.InFlight,
					i.Dead, want.Ready, want.Delayed, want.InFlight, want.Dead)
			}
		}
		w.pushN(10)
		later := w.pushRecord(client.Record{Value: []byte("later")}, client.Delay(time.Hour))
		w.pushRecord(client.Record{Value: []byte("short")}, client.Delay(30*time.Minute), client.TTL(31*time.Minute))
		pushed = 12
		out := a.nextN(8)
		check("handed out", client.GroupInfo{Ready: 2, Delayed: 2, InFlight: 8})
		w.ack(out[0], out[1])
		w.nack(out[2], 0)
		if err := out[3].Reject(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		w.ack(a.nextN(2)...)
		check("settled", client.GroupInfo{Delayed: 3, InFlight: 4, Dead: 1})
		a.Close()
		check("left", client.GroupInfo{Ready: 4, Delayed: 3, Dead: 1})
		w.kill()
		check("killed", client.GroupInfo{Ready: 4, Delayed: 3, Dead: 1})
		if n, err := w.q.Cancel(t.Context(), later); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := w.g.Redrive(t.Context(), client.RedriveOptions{}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		check("redriven", client.GroupInfo{Ready: 5, Delayed: 2})
		time.Sleep(40 * time.Minute)
		check("expired", client.GroupInfo{Ready: 6})
		b := w.consume("b")
		if got := b.rest(time.Minute); len(got) != 6 {
			t.Errorf("%d messages came, want 6: %q", len(got), got)
		}
		w.restart()
		check("in the end", client.GroupInfo{})
	})
}
