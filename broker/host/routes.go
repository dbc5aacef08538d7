// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"

	"margay.dev/router"
	"margay.dev/wire/batch"
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
