// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// A run is cut into lives. Each begins with a disturbance: the node is killed, killed while it recovers, and stopped in
// order, as the schedule below says. Then it is left alone to the end of the life, because what a process holds can be
// compared only with what the same process held before. Growth is judged within a life: the last whole minute against the
// third one, when start-up, caches and retention have settled.
type disturbance struct {
	at   time.Duration // from the beginning of the life
	what string
	do   func(r *soak, rng *rand.Rand)
}

// disturbances are over before the third minute of a life. In a life of minutes, they come in its first fifth.
func disturbances(life time.Duration) []disturbance {
	unit := min(30*time.Second, life/15)
	return []disturbance{
		{unit, "killed", func(r *soak, _ *rand.Rand) {
			r.process.Kill()
			r.process.Start()
		}},
		{2 * unit, "killed, and again while it recovers", func(r *soak, rng *rand.Rand) {
			r.process.Kill()
			r.process.Spawn()
			moment := time.NewTimer(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			defer moment.Stop()
			select {
			case <-moment.C:
			case <-r.process.Exited():
			}
			r.process.Kill()
			r.process.Start()
		}},
		{3 * unit, "stopped in order", func(r *soak, _ *rand.Rand) {
			if exit := r.process.Stop(); exit.Code != 0 {
				r.harness.Errorf("SIGTERM: %v\n%s", exit, exit.Stderr)
			}
			r.process.Start()
		}},
	}
}

// live samples and disturbs the node until the time is over.
func (r *soak) live(ctx context.Context) {
	began := time.Now()
	rng := rand.New(rand.NewPCG(uint64(began.UnixNano()), 1))
	tick := time.NewTicker(r.cfg.every)
	defer tick.Stop()
	var due []disturbance
	var life time.Time
	for ctx.Err() == nil {
		now := time.Now()
		since := now.Sub(began)
		if since >= r.cfg.duration() {
			break
		}
		if left := r.cfg.duration() - since; life.IsZero() || now.Sub(life) >= r.cfg.life() && left > r.cfg.life()/2 {
			life = now
			due = disturbances(min(r.cfg.life(), left))
			r.report.newLife()
		}
		if len(due) > 0 && now.Sub(life) >= due[0].at {
			r.say("%8v  %s\n", since.Round(time.Second), due[0].what)
			due[0].do(r, rng)
			r.report.restarts++
			due = due[1:]
		}
		r.report.add(r.sample(time.Since(began)))
		select {
		case <-tick.C:
		case <-r.process.Exited():
			r.harness.Fatalf("the node ended by itself")
		case <-ctx.Done():
		}
	}
	r.report.add(r.sample(time.Since(began)))
	r.report.close()
}
