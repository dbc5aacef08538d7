// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client"
)

// makers is how many groups are made at a time.
const makers = 64

// makeGroups makes groups that do nothing, behind the first of each queue.
func (m *measurer) makeGroups(ctx context.Context) error {
	name := func(i int) string { return fmt.Sprintf("idle-%d", i%m.queues) }
	for i := range m.queues {
		if err := m.make(ctx, name(i)); err != nil {
			return err
		}
		if err := m.push(ctx, name(i), 0, 1, 0); err != nil {
			return err
		}
	}
	before, err := m.node.Held(ctx)
	if err != nil {
		return err
	}
	var next atomic.Int64
	errs := make([]error, makers)
	var making sync.WaitGroup
	for k := range makers {
		making.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= m.groups {
					return
				}
				errs[k] = m.group(ctx, name(i), fmt.Sprintf("group-%d", i))
			}
		})
	}
	making.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	after, err := m.node.Held(ctx)
	if err != nil {
		return err
	}
	m.r.Groups, m.r.GroupBytes = m.groups, float64(after-before)/float64(m.groups)
	m.r.GroupsCPU, err = m.watch(ctx)
	return err
}

// workOff pushes a backlog, and times how it is worked off.
func (m *measurer) workOff(ctx context.Context) (float64, error) {
	if err := m.push(ctx, settled, fresh, m.backlog, 0); err != nil {
		return 0, err
	}
	begin := time.Now()
	err := m.consume(ctx, settled, m.backlog, out, func(msg *client.Message) error {
		if n := number(msg); n < fresh {
			return fmt.Errorf("message %d was handed out again", n)
		}
		msg.AckAsync()
		return nil
	})
	return float64(m.backlog) / time.Since(begin).Seconds(), err
}

func (m *measurer) before(ctx context.Context) (err error) {
	m.r.WorkRate, err = m.workOff(ctx)
	return err
}

// holders share what is kept out. What they may hold is as much as they will, so that nothing else goes to them.
const holders = 2

// inAll is how many messages make the ranges: the first and the last are not settled.
func (m *measurer) inAll() int { return 2*m.ranges + 1 }

// everySecond acks every second of the messages, and keeps the others until the node is killed.
func (m *measurer) everySecond(ctx context.Context) error {
	if err := m.push(ctx, settled, 0, m.inAll(), 0); err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(m.inAll()))
	done, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, holders)
	var holding sync.WaitGroup
	for k := range holders {
		// It lives on: what it holds goes to nobody else.
		g, err := m.queue(settled).Consume(ctx, workers, client.MaxInFlight(m.ranges/holders+(k+1)/holders), client.MustExist())
		if err != nil {
			return err
		}
		holding.Go(func() {
			for msg, err := range g.Messages(done) {
				if done.Err() != nil {
					break
				}
				if err != nil {
					errs[k] = err
					cancel()
					break
				}
				if number(msg)%2 == 1 {
					msg.AckAsync()
				}
				if left.Add(-1) == 0 {
					cancel()
				}
			}
			if errs[k] == nil {
				errs[k] = g.Flush(ctx)
			}
		})
	}
	holding.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	info, err := m.queue(settled).Group(workers).Info(ctx)
	if err != nil {
		return err
	}
	if want := uint64(m.ranges); info.InFlight != want+1 || info.Ready != 0 || info.Totals.Acked != want+uint64(m.backlog) {
		return fmt.Errorf("%d are out, %d are ready and %d settled: want %d, none, and %d", info.InFlight, info.Ready, info.Totals.Acked, want+1, want+uint64(m.backlog))
	}
	m.r.Ranges = m.ranges // one between each two that are out
	return nil
}

func (m *measurer) behind(ctx context.Context) (err error) {
	m.r.RangesRate, err = m.workOff(ctx)
	m.r.RangesRatio = m.r.RangesRate / m.r.WorkRate
	return err
}

// again kills the node: what is not settled must come again, each once, and nothing else.
func (m *measurer) again(ctx context.Context) error {
	if err := m.node.Kill(); err != nil {
		return err
	}
	begin := time.Now()
	if err := m.node.Start(ctx); err != nil {
		return err
	}
	seen := make([]bool, m.ranges+1)
	err := m.consume(ctx, settled, len(seen), out, func(msg *client.Message) error {
		n := number(msg)
		if n < 0 || n >= m.inAll() || n%2 == 1 || seen[n/2] {
			return fmt.Errorf("message %d was handed out again", n)
		}
		seen[n/2] = true
		msg.AckAsync()
		return nil
	})
	if err != nil {
		return err
	}
	m.r.RangesOpen = time.Since(begin).Seconds()
	info, err := m.queue(settled).Group(workers).Info(ctx)
	if err == nil && (info.Ready > 0 || info.InFlight > 0) {
		err = fmt.Errorf("%d messages are left, and %d are out", info.Ready, info.InFlight)
	}
	return err
}
