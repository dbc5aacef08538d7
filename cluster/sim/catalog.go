// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

const nodeID = "n1"

var errAway = errors.New("the catalog is away")

// catalog is a control plane that loses nothing and can be away. What it hands out is durable before anybody hears of it.
type catalog struct {
	w    *world
	snap control.Snapshot
	gens map[control.ShardRef]uint64
	away time.Duration // until then
}

func newCatalog(w *world) *catalog {
	c := &catalog{w: w, gens: map[control.ShardRef]uint64{}}
	c.snap.Nodes = []control.Node{{ID: nodeID, Address: "127.0.0.1:1"}}
	for i := range w.plan.logs {
		l := &w.plan.logs[i]
		c.snap.Logs = append(c.snap.Logs, l.Log)
		c.snap.Assignments = append(c.snap.Assignments, control.Assignment{Log: l.ID, Leader: nodeID})
	}
	c.snap.Version = 1
	return c
}

// change gives a log another setting, of those that lose nothing.
func (c *catalog) change(i int) {
	logs := append([]control.Log(nil), c.snap.Logs...)
	logs[i].SegmentBytes = oneOf[int64](c.w.rng, 4<<10, 8<<10, 16<<10)
	c.snap.Logs = logs
	c.snap.Version++
}

func (c *catalog) Watch(context.Context, uint64) (control.Snapshot, error) { return c.snap, nil }

func (c *catalog) Lead(_ context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error) {
	if c.w.now < c.away {
		if c.w.chance(2) { // its answer is lost, not what it did
			for _, ref := range refs {
				c.gens[ref]++
			}
		}
		return nil, errAway
	}
	out := make([]control.Assignment, 0, len(refs))
	for _, ref := range refs {
		c.gens[ref]++
		out = append(out, control.Assignment{Log: ref.Log, Shard: ref.Shard, Leader: node, Generation: c.gens[ref]})
	}
	return out, nil
}

func (c *catalog) Forget(context.Context, ...batch.LogID) error { return nil }
