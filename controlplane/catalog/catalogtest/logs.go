// SPDX-License-Identifier: Apache-2.0

package catalogtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/control"
)

func testCreate(t *testing.T, o Opened) {
	s := o.Store
	before := mustSnapshot(t, s).Version
	l := newLog("default", "orders", 3)
	got := mustCreate(t, s, l)
	want := l
	want.Version = before + 1
	if got != want {
		t.Fatalf("created %+v, want %+v", got, want)
	}
	if read, err := s.Log(t.Context(), name(l)); err != nil || read != want {
		t.Fatalf("read %+v, %v", read, err)
	}
	for _, other := range []control.Log{newCache("sessions"), newQueue("emails")} {
		made := mustCreate(t, s, other)
		other.Version = made.Version
		if read, err := s.Log(t.Context(), name(other)); err != nil || made != other || read != other {
			t.Fatalf("created %+v, read %+v, %v", made, read, err)
		}
		before++
	}
	other := newLog("default", "orders", 1)
	have, err := s.Create(t.Context(), other, "n1")
	if !errors.Is(err, catalog.ErrExists) || have != want {
		t.Fatalf("second create: %+v, %v", have, err)
	}
	if have, err := s.Create(t.Context(), newCache("orders"), "n1"); !errors.Is(err, catalog.ErrExists) || have != want {
		t.Fatalf("a cache of the name: %+v, %v", have, err)
	}
	if v := mustSnapshot(t, s).Version; v != before+1 {
		t.Fatalf("a refused create moved the version to %d", v)
	}
	again := newLog("default", "other", 1)
	again.ID = l.ID
	if _, err := s.Create(t.Context(), again, "n1"); err == nil {
		t.Fatal("an id was used twice")
	}
	if _, err := s.Log(t.Context(), catalog.Name{Tenant: "default", Namespace: "default", Name: "absent"}); !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("absent: %v", err)
	}
	if _, err := s.Create(t.Context(), newLog("default", "nobody", 1), ""); err == nil {
		t.Fatal("created without a leader")
	}
}

func testConcurrentCreates(t *testing.T, o Opened) {
	const writers, names = 8, 5
	var mu sync.Mutex
	made := map[string][]control.Log{}
	seen := map[string][]control.Log{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range names {
				l := newLog("default", fmt.Sprintf("s%d", i), 1+w)
				got, err := o.Store.Create(t.Context(), l, "n1")
				mu.Lock()
				switch {
				case err == nil:
					made[l.Name] = append(made[l.Name], got)
				case !errors.Is(err, catalog.ErrExists):
					t.Errorf("%s: %v", l.Name, err)
				}
				seen[l.Name] = append(seen[l.Name], got)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for n, all := range seen {
		if len(made[n]) != 1 {
			t.Errorf("%s: %d creates won", n, len(made[n]))
		}
		for _, l := range all {
			if l != all[0] {
				t.Errorf("%s: two writers were shown two logs: %+v and %+v", n, l, all[0])
			}
		}
	}
}

func testList(t *testing.T, o Opened) {
	s := o.Store
	for _, n := range []string{"b", "a", "c", "a.b", "a-b", "ab"} {
		mustCreate(t, s, newLog("default", n, 1))
	}
	elsewhere := newLog("default", "z", 1)
	elsewhere.Namespace = "other"
	mustCreate(t, s, elsewhere)
	almost := newLog("default", "y", 1)
	almost.Namespace = "default2"
	mustCreate(t, s, almost)
	var all []string
	for after := ""; ; {
		page, err := s.List(t.Context(), "default", "default", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			all = append(all, l.Name)
		}
		after = page[len(page)-1].Name
	}
	if got, want := fmt.Sprint(all), "[a a-b a.b ab b c]"; got != want {
		t.Fatalf("listed %s, want %s", got, want)
	}
	// A cursor whose log is gone goes on after where it was.
	if err := s.Delete(t.Context(), catalog.Name{Tenant: "default", Namespace: "default", Name: "ab"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), "default", "default", "ab", 1)
	if err != nil || len(page) != 1 || page[0].Name != "b" {
		t.Fatalf("after a deleted one: %v, %v", page, err)
	}
}

func testUpdate(t *testing.T, o Opened) {
	s := o.Store
	l := mustCreate(t, s, newLog("default", "orders", 1))
	got, err := s.Update(t.Context(), name(l), l.Version, func(l *control.Log) error {
		l.MaxBytes = 1 << 30
		return nil
	})
	want := l
	want.MaxBytes, want.Version = 1<<30, l.Version+1
	if err != nil || got != want {
		t.Fatalf("updated %+v, %v", got, err)
	}
	if _, err := s.Update(t.Context(), name(l), l.Version, func(l *control.Log) error {
		l.MaxBytes = 7
		return nil
	}); !errors.Is(err, catalog.ErrVersion) {
		t.Fatalf("a stale version: %v", err)
	}
	refusal := errors.New("no")
	if _, err := s.Update(t.Context(), name(l), 0, func(l *control.Log) error {
		l.MaxBytes = 7
		return refusal
	}); !errors.Is(err, refusal) {
		t.Fatalf("a refused change: %v", err)
	}
	same, err := s.Update(t.Context(), name(l), 0, func(*control.Log) error { return nil })
	if err != nil || same != want {
		t.Fatalf("a change of nothing: %+v, %v", same, err)
	}
	for what, change := range map[string]func(*control.Log){
		"name":    func(l *control.Log) { l.Name = "other" },
		"id":      func(l *control.Log) { l.ID[0]++ },
		"shards":  func(l *control.Log) { l.Shards++ },
		"deleted": func(l *control.Log) { l.Deleted = true },
	} {
		if _, err := s.Update(t.Context(), name(l), 0, func(l *control.Log) error { change(l); return nil }); err == nil {
			t.Errorf("an update changed the %s", what)
		}
	}
	if read, err := s.Log(t.Context(), name(l)); err != nil || read != want {
		t.Fatalf("afterwards %+v, %v", read, err)
	}
	if _, err := s.Update(t.Context(), catalog.Name{Tenant: "default", Namespace: "default", Name: "absent"}, 0,
		func(*control.Log) error { return nil }); !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("absent: %v", err)
	}
}

func testConcurrentUpdates(t *testing.T, o Opened) {
	const writers, rounds = 6, 5
	l := newLog("default", "orders", 1)
	l.MaxBytes = 0
	l = mustCreate(t, o.Store, l)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range rounds {
				if _, err := o.Store.Update(t.Context(), name(l), 0, func(l *control.Log) error {
					l.MaxBytes++
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := o.Store.Log(t.Context(), name(l))
	if err != nil || got.MaxBytes != writers*rounds {
		t.Fatalf("%d of %d changes are there: %v", got.MaxBytes, writers*rounds, err)
	}
}

// PL-12: a log made again under an old name shares nothing with its predecessor.
func testDeleteAndRecreate(t *testing.T, o Opened) {
	s := o.Store
	old := mustCreate(t, s, newLog("default", "orders", 2))
	if _, err := s.Lead(t.Context(), "n1", []control.ShardRef{{Log: old.ID}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), name(old), old.Version+100, nil); !errors.Is(err, catalog.ErrVersion) {
		t.Fatalf("a delete at another version: %v", err)
	}
	refusal := errors.New("no")
	if err := s.Delete(t.Context(), name(old), 0, func(l *control.Log) error {
		if *l != old {
			t.Errorf("asked about %+v, want %+v", *l, old)
		}
		return refusal
	}); !errors.Is(err, refusal) {
		t.Fatalf("a delete that was not allowed: %v", err)
	}
	if err := s.Delete(t.Context(), name(old), old.Version, func(*control.Log) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), name(old), 0, nil); !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("deleted twice: %v", err)
	}
	if _, err := s.Log(t.Context(), name(old)); !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("a deleted log is still there: %v", err)
	}
	made := mustCreate(t, s, newLog("default", "orders", 3))
	snap := mustSnapshot(t, s)
	if len(snap.Logs) != 2 || len(snap.Assignments) != 3 {
		t.Fatalf("snapshot %+v", snap)
	}
	for _, l := range snap.Logs {
		if l.Deleted != (l.ID == old.ID) {
			t.Errorf("log %s deleted: %v", l.ID, l.Deleted)
		}
	}
	for _, a := range snap.Assignments {
		if a.Log != made.ID || a.Generation != 0 {
			t.Errorf("assignment %+v", a)
		}
	}
	reused := newLog("default", "another", 1)
	reused.ID = old.ID
	if _, err := s.Create(t.Context(), reused, "n1"); err == nil {
		t.Fatal("the id of a deleted log was used again")
	}
}

func testForget(t *testing.T, o Opened) {
	s := o.Store
	gone, kept := mustCreate(t, s, newLog("default", "gone", 1)), mustCreate(t, s, newLog("default", "kept", 1))
	if err := s.Delete(t.Context(), name(gone), 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), gone.ID, kept.ID, newLog("x", "x", 1).ID); err != nil {
		t.Fatal(err)
	}
	snap := mustSnapshot(t, s)
	if len(snap.Logs) != 1 || snap.Logs[0] != kept || len(snap.Assignments) != 1 {
		t.Fatalf("snapshot %+v", snap)
	}
	if err := s.Forget(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if v := mustSnapshot(t, s).Version; v != snap.Version {
		t.Fatalf("forgetting nothing moved the version from %d to %d", snap.Version, v)
	}
}

// AU-14: equal names in two tenants are two logs.
func testTenants(t *testing.T, o Opened) {
	s := o.Store
	a, b := mustCreate(t, s, newLog("t1", "orders", 1)), mustCreate(t, s, newLog("t2", "orders", 2))
	if err := s.Delete(t.Context(), name(a), 0, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Log(t.Context(), name(b)); err != nil || got != b {
		t.Fatalf("the other tenant's: %+v, %v", got, err)
	}
	if page, err := s.List(t.Context(), "t1", "default", "", 10); err != nil || len(page) != 0 {
		t.Fatalf("%v, %v", page, err)
	}
}
