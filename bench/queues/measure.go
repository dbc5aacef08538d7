// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"margay.dev/bench/internal/life"
	"margay.dev/bench/internal/proc"
	"margay.dev/client"
	"margay.dev/cluster/load"
)

const (
	// stepWithin bounds a step: one that takes longer is a failure, not a figure.
	stepWithin = 5 * time.Minute
	// window is how many pushes are under way.
	window = 5000
	// ahead is when messages are due that wait.
	ahead = time.Hour
	// dueAfter is the delay of those whose time comes.
	dueAfter = 2 * time.Second
	// rest is how long a node is left alone before it is watched.
	rest = 2 * time.Second
	// ackWait is longer than any step: nothing is to be handed out again.
	ackWait = time.Hour
	// numberSize is how many bytes a message begins with that say which it is.
	numberSize = 8
	// out is how many messages a consumer holds.
	out = 2000

	delayed, settled, workers = "delayed", "settled", "workers"
)

// measurer measures one node through its lives.
type measurer struct {
	options
	node *life.Node
	say  func(format string, args ...any)
	r    Result
	base int64 // memory of a node with nothing in it
	// waiting is a consumer of what is delayed: without one, a group need not know of any message.
	waiting *client.Consumer
}

func (m *measurer) measure(ctx context.Context) (*Result, error) {
	if m.say == nil {
		m.say = func(string, ...any) {}
	}
	defer m.node.Stop()
	m.r = Result{System: "margay, fsync always, " + m.transport, Messages: m.messages, Size: m.size}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"starting a node", m.begin},
		{"pushing messages that are due in an hour", m.delay},
		{"opening after a stop", m.stopped},
		{"opening after a kill", m.killed},
		{"handing out what becomes due", m.becomeDue},
		{"making groups", m.makeGroups},
		{"working off", m.before},
		{"settling every second message", m.everySecond},
		{"working off behind them", m.behind},
		{"opening after a kill", m.again},
	} {
		m.say("%s", step.what)
		bound, cancel := context.WithTimeout(ctx, stepWithin+m.idle+m.due)
		err := step.do(bound)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return &m.r, nil
}

func (m *measurer) queue(name string) *client.Queue { return m.node.Client.Queue(name) }

// make makes a queue with a group.
func (m *measurer) make(ctx context.Context, name string) error {
	if err := m.node.Queue(ctx, name); err != nil {
		return err
	}
	return m.group(ctx, name, workers)
}

func (m *measurer) group(ctx context.Context, queue, name string) error {
	return m.queue(queue).Group(name).Ensure(ctx, client.GroupConfig{AckWait: ackWait})
}

// push pushes messages with these numbers, from first on, over a window.
func (m *measurer) push(ctx context.Context, queue string, first, n int, delay time.Duration) error {
	q := m.queue(queue)
	under := make([]client.Future, 0, window)
	for i := range n {
		if len(under) == window {
			if err := answered(ctx, under[:window/2]); err != nil {
				return err
			}
			under = under[:copy(under, under[window/2:])]
		}
		under = append(under, q.PushAsync(ctx, client.Record{Value: m.message(first + i), Delay: delay}))
	}
	return answered(ctx, under)
}

func answered(ctx context.Context, futures []client.Future) error {
	for _, f := range futures {
		if _, err := f.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurer) message(number int) []byte {
	b := make([]byte, m.size)
	binary.LittleEndian.PutUint64(b, uint64(number))
	return b
}

func number(msg *client.Message) int {
	if len(msg.Value) < numberSize {
		return -1
	}
	return int(binary.LittleEndian.Uint64(msg.Value))
}

var errEnd = errors.New("the messages came to an end")

// consume takes so many messages, and stops.
func (m *measurer) consume(ctx context.Context, queue string, n, inFlight int, each func(*client.Message) error) error {
	g, err := m.queue(queue).Consume(ctx, workers, client.MaxInFlight(inFlight), client.MustExist())
	if err != nil {
		return err
	}
	defer g.Close()
	for msg, err := range g.Messages(ctx) {
		if err != nil {
			return err
		}
		if err := each(msg); err != nil {
			return err
		}
		if n--; n == 0 {
			return g.Flush(ctx)
		}
	}
	return errEnd
}

// watch is what the node takes of a core while it has nothing to do, in percent.
func (m *measurer) watch(ctx context.Context) (float64, error) {
	if err := wait(ctx, rest); err != nil {
		return 0, err
	}
	cpu, begin := proc.CPU(m.node.PID()), time.Now()
	if err := wait(ctx, m.idle); err != nil {
		return 0, err
	}
	return 100 * float64(proc.CPU(m.node.PID())-cpu) / float64(time.Since(begin)), nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin has a node with all it needs, and nothing in it.
func (m *measurer) begin(ctx context.Context) (err error) {
	if err := m.node.Start(ctx); err != nil {
		return err
	}
	for _, name := range []string{delayed, settled} {
		if err := m.make(ctx, name); err != nil {
			return err
		}
	}
	// What the first of a kind makes is no part of what the next one costs.
	if err := m.push(ctx, delayed, 0, 1000, ahead); err != nil {
		return err
	}
	if err := m.waitForDelayed(ctx); err != nil {
		return err
	}
	if m.r.EmptyCPU, err = m.watch(ctx); err != nil {
		return err
	}
	m.base, err = m.node.Held(ctx)
	return err
}

// waitForDelayed has somebody wait who would be handed what is due.
func (m *measurer) waitForDelayed(ctx context.Context) (err error) {
	m.waiting, err = m.queue(delayed).Consume(ctx, workers, client.MaxInFlight(out), client.MustExist())
	return err
}

func (m *measurer) delay(ctx context.Context) error {
	begin := time.Now()
	if err := m.push(ctx, delayed, 0, m.messages, ahead); err != nil {
		return err
	}
	m.r.FillRate = float64(m.messages) / time.Since(begin).Seconds()
	after, err := m.node.Held(ctx)
	if err != nil {
		return err
	}
	m.r.DelayedBytes = float64(after-m.base) / float64(m.messages)
	m.r.DelayedCPU, err = m.watch(ctx)
	return err
}

func (m *measurer) stopped(ctx context.Context) error {
	m.node.Stop()
	took, err := m.open(ctx)
	if err != nil {
		return err
	}
	m.r.OpenStopped = took.Seconds()
	held, err := m.node.Held(ctx)
	m.r.DelayedReopened = float64(held-m.base) / float64(m.messages)
	return err
}

func (m *measurer) killed(ctx context.Context) error {
	if err := m.node.Kill(); err != nil {
		return err
	}
	took, err := m.open(ctx)
	m.r.Open = took.Seconds()
	return err
}

// fresh is the number of a message that is pushed to see whether it is handed out.
const fresh = 1 << 40

// open starts the node and times it from there until a new message is pushed, and handed out.
func (m *measurer) open(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	if err := m.node.Start(ctx); err != nil {
		return 0, err
	}
	if err := m.push(ctx, delayed, fresh, 1, 0); err != nil {
		return 0, err
	}
	if err := m.waitForDelayed(ctx); err != nil {
		return 0, err
	}
	for msg, err := range m.waiting.Messages(ctx) {
		took := time.Since(begin)
		if err == nil && number(msg) != fresh {
			err = fmt.Errorf("message %d was handed out an hour before its time", number(msg))
		}
		if err == nil {
			err = msg.Ack(ctx)
		}
		return took, err
	}
	return 0, errEnd
}

// becomeDue pushes at a rate, and times each from when it is due.
func (m *measurer) becomeDue(ctx context.Context) error {
	n := max(1, int(m.rate*m.due.Seconds()))
	m.waiting.Close() // another one counts
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := load.NewHistogram()
	var consumed error
	var consuming sync.WaitGroup
	consuming.Go(func() {
		consumed = m.consume(ctx, delayed, n, out, func(msg *client.Message) error {
			d := time.Since(msg.AppendTime.Add(msg.Delay))
			if d < 0 || msg.Delay != dueAfter {
				return fmt.Errorf("message %d with a delay of %v was handed out %v early", number(msg), msg.Delay, -d)
			}
			_ = late.RecordValue(int64(max(d, 1))) // it refuses what is above ten minutes
			msg.AckAsync()
			return nil
		})
	})
	pushed := m.pushAtRate(ctx, n)
	if pushed != nil {
		cancel() // what it waits for will not come
	}
	consuming.Wait()
	if err := errors.Join(pushed, consumed); err != nil {
		return err
	}
	m.r.Due, m.r.Late = n, load.QuantilesOf(late, load.DueHanded)
	m.r.LateP99 = m.r.Late.P99 / 1e3
	return nil
}

func (m *measurer) pushAtRate(ctx context.Context, n int) error {
	q, begin := m.queue(delayed), time.Now()
	under := make([]client.Future, 0, n)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(under) < n {
		for due := int(time.Since(begin).Seconds() * m.rate); len(under) < min(due, n); {
			under = append(under, q.PushAsync(ctx, client.Record{Value: m.message(len(under)), Delay: dueAfter}))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return answered(ctx, under)
}
