// SPDX-License-Identifier: Apache-2.0

// Package catalogtest is the conformance suite of the catalog: what every store must do, whatever it keeps its rows in.
// It opens stores through the function it is given, touches nothing else, and refuses a store that loses or reorders.
package catalogtest

import (
	"context"
	"testing"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// deadline bounds each wait for something that another goroutine does.
const deadline = 10 * time.Second

// Opened is one store under test.
type Opened struct {
	Store catalog.Store
	// Reopen ends the store without closing it, as a kill would, and opens what it left behind. The suite uses the
	// store it returns from then on.
	Reopen func(t *testing.T) catalog.Store
}

// Run runs the suite; open gives each part an empty store of its own.
func Run(t *testing.T, open func(t *testing.T) Opened) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, Opened)
	}{
		{"Create", testCreate},
		{"ConcurrentCreates", testConcurrentCreates},
		{"List", testList},
		{"Update", testUpdate},
		{"ConcurrentUpdates", testConcurrentUpdates},
		{"DeleteAndRecreate", testDeleteAndRecreate},
		{"Forget", testForget},
		{"Tenants", testTenants},
		{"Lead", testLead},
		{"ConcurrentLeads", testConcurrentLeads},
		{"Snapshot", testSnapshot},
		{"WaitWakes", testWaitWakes},
		{"FollowersMissNothing", testFollowersMissNothing},
		{"RestoredCopy", testRestoredCopy},
		{"Bind", testBind},
		{"APIKeys", testAPIKeys},
		{"SigningKeys", testSigningKeys},
		{"CancelledChangesNothing", testCancelled},
		{"SurvivesReopen", testSurvivesReopen},
		{"Closed", testClosed},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, open(t)) })
	}
}

// newLog is a valid log with a fresh id.
func newLog(tenant, name string, shards int) control.Log {
	l := control.Log{
		ID: batch.NewLogID(), Tenant: tenant, Name: name, Shards: shards,
		Fsync: control.FsyncInterval, MaxAge: 7 * 24 * time.Hour, MaxBytes: 10 << 30, SegmentBytes: 1 << 20,
		OnFull: control.OnFullDropOldest, DedupWindow: time.Minute,
		SegmentAge: time.Hour, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	l.SetDefaults()
	return l
}

// newCache is a valid cache, with a value of its own in every setting that newLog leaves at its zero.
func newCache(name string) control.Log {
	l := control.Log{
		ID: batch.NewLogID(), Name: name, Preset: control.PresetCache, MaxKeys: 5000, TTL: 30 * time.Minute,
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	l.SetDefaults()
	return l
}

// newQueue is a valid queue.
func newQueue(name string) control.Log {
	l := control.Log{ID: batch.NewLogID(), Name: name, Preset: control.PresetQueue, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
	l.SetDefaults()
	return l
}

func name(l control.Log) catalog.Name { return catalog.NameOf(&l) }

func mustCreate(t *testing.T, s catalog.Store, l control.Log) control.Log {
	t.Helper()
	got, err := s.Create(t.Context(), l, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mustSnapshot(t *testing.T, s catalog.Store) control.Snapshot {
	t.Helper()
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}
