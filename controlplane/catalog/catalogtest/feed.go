// SPDX-License-Identifier: Apache-2.0

package catalogtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

func testLead(t *testing.T, o Opened) {
	s := o.Store
	a := mustCreate(t, s, newLog("default", "a", 2))
	b := newLog("default", "b", 1)
	if _, err := s.Create(t.Context(), b, "n2"); err != nil {
		t.Fatal(err)
	}
	before := mustSnapshot(t, s).Version
	refs := []control.ShardRef{
		{Log: a.ID, Shard: 1},
		{Log: b.ID},              // another node's
		{Log: a.ID, Shard: 7},    // no such shard
		{Log: batch.LogID{1, 2}}, // no such log
		{Log: a.ID},
		{Log: a.ID}, // named twice
	}
	got, err := s.Lead(t.Context(), "n1", refs)
	want := []control.Assignment{{Log: a.ID, Shard: 1, Leader: "n1", Generation: 1}, {Log: a.ID, Leader: "n1", Generation: 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if v := mustSnapshot(t, s).Version; v != before+1 {
		t.Fatalf("version %d after %d: one transaction moves it by one", v, before)
	}
	if got, err = s.Lead(t.Context(), "n1", refs[:1]); err != nil || got[0].Generation != 2 {
		t.Fatalf("second time: %+v, %v", got, err)
	}
	for _, none := range [][]control.ShardRef{nil, refs[1:4]} {
		if got, err = s.Lead(t.Context(), "n1", none); err != nil || len(got) != 0 {
			t.Fatalf("nothing to lead: %+v, %v", got, err)
		}
	}
	if v := mustSnapshot(t, s).Version; v != before+2 {
		t.Fatalf("version %d: leading nothing must not move it", v)
	}
}

// A generation is given out once, whoever asks at the same time.
func testConcurrentLeads(t *testing.T, o Opened) {
	const callers, rounds = 6, 5
	l := mustCreate(t, o.Store, newLog("default", "a", 4))
	var refs []control.ShardRef
	for i := range uint32(4) {
		refs = append(refs, control.ShardRef{Log: l.ID, Shard: i})
	}
	var mu sync.Mutex
	seen := map[control.Assignment]bool{}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				got, err := o.Store.Lead(t.Context(), "n1", refs)
				if err != nil || len(got) != len(refs) {
					t.Errorf("%+v, %v", got, err)
					return
				}
				mu.Lock()
				for _, a := range got {
					if seen[a] {
						t.Errorf("%+v was given out twice", a)
					}
					seen[a] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, a := range mustSnapshot(t, o.Store).Assignments {
		if a.Generation != callers*rounds {
			t.Errorf("%+v after %d leads", a, callers*rounds)
		}
	}
}

func testSnapshot(t *testing.T, o Opened) {
	s := o.Store
	if err := s.Bind(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []control.Node{{ID: "n2", Address: "h2:7420"}, {ID: "n1", Address: "old:7420"}, {ID: "n1", Address: "h1:7420"}} {
		if err := s.SetNode(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetNode(t.Context(), control.Node{}); err == nil {
		t.Error("stored a node without an id")
	}
	a, b := mustCreate(t, s, newLog("default", "a", 2)), mustCreate(t, s, newLog("default", "b", 1))
	snap := mustSnapshot(t, s)
	if snap.Cluster != "lab" || snap.Issuer != catalog.Issuer("lab") || snap.Version != b.Version {
		t.Errorf("snapshot %+v", snap)
	}
	if want := []control.Node{{ID: "n1", Address: "h1:7420"}, {ID: "n2", Address: "h2:7420"}}; !slices.Equal(snap.Nodes, want) {
		t.Errorf("nodes %+v", snap.Nodes)
	}
	byID := func(x, y control.Log) int { return bytes.Compare(x.ID[:], y.ID[:]) }
	if want := []control.Log{a, b}; !slices.IsSortedFunc(snap.Logs, byID) || len(snap.Logs) != 2 ||
		!slices.Contains(want, snap.Logs[0]) || !slices.Contains(want, snap.Logs[1]) {
		t.Errorf("logs %+v", snap.Logs)
	}
	if len(snap.Assignments) != 3 {
		t.Errorf("assignments %+v", snap.Assignments)
	}
	// Whoever gets a snapshot owns it.
	snap.Logs[0].Name, snap.Assignments[0].Leader, snap.Nodes[0].ID = "x", "x", "x"
	if again := mustSnapshot(t, s); again.Logs[0].Name == "x" || again.Assignments[0].Leader == "x" || again.Nodes[0].ID == "x" {
		t.Error("a snapshot is shared with the next one")
	}
	// Nothing that changes nothing moves the version.
	if err := errors.Join(s.Bind(t.Context(), "lab"), s.SetNode(t.Context(), control.Node{ID: "n1", Address: "h1:7420"})); err != nil {
		t.Fatal(err)
	}
	if again := mustSnapshot(t, s); again.Version != snap.Version {
		t.Errorf("version %d, was %d", again.Version, snap.Version)
	}
}

func testWaitWakes(t *testing.T, o Opened) {
	s := o.Store
	mustCreate(t, s, newLog("default", "first", 1))
	now := mustSnapshot(t, s).Version
	if v, err := s.Wait(bounded(t), now-1); err != nil || v != now {
		t.Fatalf("a change that has been: %d, %v", v, err)
	}
	type result struct {
		version uint64
		err     error
	}
	const waiters = 5
	results := make(chan result, waiters)
	ctx := bounded(t)
	for range waiters {
		go func() {
			v, err := s.Wait(ctx, now)
			results <- result{v, err}
		}()
	}
	mustCreate(t, s, newLog("default", "second", 1))
	for range waiters {
		if r := <-results; r.err != nil || r.version != now+1 {
			t.Errorf("woke with %d, %v", r.version, r.err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(gone, now+1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// PL-03: whoever follows the feed learns of every change, also of one that commits beside another.
func testFollowersMissNothing(t *testing.T, o Opened) {
	const writers, each = 4, 8
	s := o.Store
	ctx := bounded(t)
	followed := make(chan error, 2)
	for range cap(followed) {
		go func() {
			for after := uint64(0); ; {
				snap, err := s.Snapshot(ctx)
				if err != nil {
					followed <- err
					return
				}
				if len(snap.Logs) == writers*each {
					followed <- nil
					return
				}
				after = max(after, snap.Version)
				if _, err := s.Wait(ctx, after); err != nil {
					followed <- fmt.Errorf("stuck at version %d with %d logs: %w", after, len(snap.Logs), err)
					return
				}
			}
		}()
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := s.Create(ctx, newLog("default", fmt.Sprintf("w%d-%d", w, i), 1), "n1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for range cap(followed) {
		if err := <-followed; err != nil {
			t.Error(err)
		}
	}
}

func testRestoredCopy(t *testing.T, o Opened) {
	if _, err := o.Store.Wait(bounded(t), mustSnapshot(t, o.Store).Version+100); !errors.Is(err, catalog.ErrVersion) {
		t.Fatalf("waiting for a version that was never there: %v", err)
	}
}

func testBind(t *testing.T, o Opened) {
	s := o.Store
	if name, err := s.Cluster(t.Context()); err != nil || name != "" {
		t.Fatalf("%q, %v", name, err)
	}
	if err := s.Bind(t.Context(), ""); err == nil {
		t.Error("bound to no name")
	}
	if err := s.Bind(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(t.Context(), "other"); !errors.Is(err, catalog.ErrForeign) {
		t.Errorf("bound to another: %v", err)
	}
	if name, err := s.Cluster(t.Context()); err != nil || name != "lab" {
		t.Errorf("%q, %v", name, err)
	}
}

func testSurvivesReopen(t *testing.T, o Opened) {
	s := o.Store
	a := mustCreate(t, s, newLog("default", "a", 2))
	gone := mustCreate(t, s, newLog("default", "gone", 1))
	if err := errors.Join(
		s.Bind(t.Context(), "lab"),
		s.SetNode(t.Context(), control.Node{ID: "n1", Address: "h:1"}),
		s.Delete(t.Context(), name(gone), 0, nil),
		s.AddSigningKey(t.Context(), catalog.SigningKey{ID: "k1", Seed: make([]byte, ed25519.SeedSize)}),
		s.AddAPIKey(t.Context(), catalog.APIKey{ID: "i1", Name: "owner", Hash: []byte{1}}, false),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lead(t.Context(), "n1", []control.ShardRef{{Log: a.ID}}); err != nil {
		t.Fatal(err)
	}
	before := mustSnapshot(t, s)
	s = o.Reopen(t)
	if after := mustSnapshot(t, s); !reflect.DeepEqual(after, before) {
		t.Fatalf("before %+v\nafter %+v", before, after)
	}
	if _, err := s.APIKey(t.Context(), "i1"); err != nil {
		t.Error(err)
	}
	if got, err := s.Lead(t.Context(), "n1", []control.ShardRef{{Log: a.ID}}); err != nil || got[0].Generation != 2 {
		t.Errorf("the generation after a restart: %+v, %v", got, err)
	}
}

func testCancelled(t *testing.T, o Opened) {
	s := o.Store
	l := mustCreate(t, s, newLog("default", "a", 1))
	before := mustSnapshot(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err1 := s.Create(ctx, newLog("default", "b", 1), "n1")
	_, err2 := s.Update(ctx, name(l), 0, func(l *control.Log) error { l.MaxBytes++; return nil })
	_, err3 := s.Lead(ctx, "n1", []control.ShardRef{{Log: l.ID}})
	_, err4 := s.Snapshot(ctx)
	for _, err := range []error{err1, err2, err3, err4, s.Delete(ctx, name(l), 0, nil), s.Bind(ctx, "x")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	if after := mustSnapshot(t, s); !reflect.DeepEqual(after, before) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

func testClosed(t *testing.T, o Opened) {
	s := o.Store
	now := mustSnapshot(t, s).Version
	woken := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		_, err := s.Wait(ctx, now)
		woken <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; !errors.Is(err, catalog.ErrClosed) {
		t.Errorf("who waited: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, catalog.ErrClosed) {
		t.Errorf("a read: %v", err)
	}
	if _, err := s.Create(t.Context(), newLog("default", "a", 1), "n1"); !errors.Is(err, catalog.ErrClosed) {
		t.Errorf("a change: %v", err)
	}
}
