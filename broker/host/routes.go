// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"

	"margay.dev/router"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// swap builds the routing map from the snapshot and what is open, and makes it current whole.
func (h *Host) swap() {
	addrs := map[string]string{}
	for _, n := range h.snapshot.Nodes {
		addrs[n.ID] = n.Address
	}
	byID := map[batch.LogID]*router.Log{}
	logs := make([]*router.Log, 0, len(h.snapshot.Logs))
	for i := range h.snapshot.Logs {
		l := h.snapshot.Logs[i]
		if l.Deleted {
			continue
		}
		r := &router.Log{ID: router.LogID(l.ID), Name: l.FullName(), Info: &l, Shards: make([]router.Shard, l.Shards)}
		byID[l.ID] = r
		logs = append(logs, r)
	}
	for _, a := range h.snapshot.Assignments {
		l := byID[a.Log]
		if l == nil || int(a.Shard) >= len(l.Shards) {
			continue
		}
		ref := Ref{Log: a.Log, Shard: a.Shard}
		sh := router.Shard{Leader: a.Leader, Address: addrs[a.Leader], Generation: a.Generation}
		if err := h.damaged[ref]; err != nil {
			sh.Fault = h.faultText(err)
		}
		sh.NoRoom = h.retry[ref].noRoom
		if s := h.shards[ref]; s != nil {
			sh.Handle, sh.Generation = s, s.cfg.Generation
		}
		l.Shards[a.Shard] = sh
	}
	h.cfg.Table.Swap(router.New(h.snapshot.Version, h.cfg.Node, logs))
}

// faultText is what a client may know of a shard that stays closed; the node's log says where the files are.
func (h *Host) faultText(err error) string {
	return strings.ReplaceAll(err.Error(), h.cfg.Dir.Path(), "DATA")
}

func (h *Host) setReport(want map[Ref]*control.Log) {
	r := Report{Ready: h.snapshot.Version > 0, Shards: len(h.shards), Quarantined: map[Ref]string{}}
	for ref, err := range h.damaged {
		r.Quarantined[ref] = err.Error()
	}
	known := map[batch.LogID]bool{}
	for i := range h.snapshot.Logs {
		known[h.snapshot.Logs[i].ID] = true
	}
	if dirs, err := h.cfg.Dir.List(); err == nil {
		for _, d := range dirs {
			if !known[d.Log] {
				r.Unknown++
			}
		}
	}
	for ref := range want {
		if h.shards[ref] == nil && h.damaged[ref] == nil {
			r.Ready = false
		}
	}
	h.metrics.shards.Set(float64(len(h.shards)))
	h.metrics.unknown.Set(float64(r.Unknown))
	h.mu.Lock()
	h.report = r
	if h.snapshot.Version > h.applied {
		h.applied = h.snapshot.Version
		close(h.moved)
		h.moved = make(chan struct{})
	}
	h.mu.Unlock()
}

// WaitApplied waits until the routing map is of this catalog version or a later one.
func (h *Host) WaitApplied(ctx context.Context, version uint64) error {
	for {
		h.mu.Lock()
		applied, moved := h.applied, h.moved
		h.mu.Unlock()
		if applied >= version {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
