// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"sync"

	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// Plane is a control plane in memory: one node, generations that only rise.
type Plane struct {
	mu      sync.Mutex
	snap    control.Snapshot
	changed chan struct{}
	gens    map[control.ShardRef]uint64
}

// NewPlane makes one with these logs.
func NewPlane(logs ...control.Log) *Plane {
	p := &Plane{changed: make(chan struct{}), gens: map[control.ShardRef]uint64{}}
	p.Set(logs...)
	return p
}

// Set changes the catalog to these logs.
func (p *Plane) Set(logs ...control.Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snap.Version++
	p.snap.Logs = logs
	p.snap.Nodes = []control.Node{{ID: node, Address: "127.0.0.1:1"}}
	p.snap.Assignments = nil
	for _, l := range logs {
		for i := range l.Shards {
			if !l.Deleted {
				p.snap.Assignments = append(p.snap.Assignments, control.Assignment{Log: l.ID, Shard: uint32(i), Leader: node})
			}
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Watch implements host.ControlPlane.
func (p *Plane) Watch(ctx context.Context, after uint64) (control.Snapshot, error) {
	for {
		p.mu.Lock()
		s, changed := p.snap, p.changed
		p.mu.Unlock()
		if s.Version > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return control.Snapshot{}, ctx.Err()
		}
	}
}

// Lead implements host.ControlPlane.
func (p *Plane) Lead(_ context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []control.Assignment
	for _, r := range refs {
		p.gens[r]++
		out = append(out, control.Assignment{Log: r.Log, Shard: r.Shard, Leader: node, Generation: p.gens[r]})
	}
	return out, nil
}

// Forget implements host.ControlPlane.
func (p *Plane) Forget(context.Context, ...batch.LogID) error { return nil }

// Log is a log with defaults, and what edit changes of them.
func Log(edit func(*control.Log)) control.Log {
	l := control.Log{ID: batch.NewLogID(), Name: "orders"}
	l.SetDefaults()
	if edit != nil {
		edit(&l)
	}
	return l
}
