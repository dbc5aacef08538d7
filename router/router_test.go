// SPDX-License-Identifier: Apache-2.0

package router_test

import (
	"testing"

	"margay.dev/router"
)

func sample() *router.Map {
	l := &router.Log{ID: router.LogID{1}, Name: "default/default/orders", Shards: []router.Shard{
		{Leader: "n1", Address: "a1", Generation: 3, Handle: "mine"},
		{Leader: "n1", Address: "a1", Generation: 3},
		{Leader: "n2", Address: "a2", Generation: 4},
		{Generation: 5},
		{Leader: "n1", Generation: 3, Handle: "mine", Fault: "a flipped bit"},
		{Leader: "n1", Generation: 3, NoRoom: "no descriptors"},
	}}
	return router.New(7, "n1", []*router.Log{l})
}

func TestResolve(t *testing.T) {
	m := sample()
	for _, c := range []struct {
		id      router.LogID
		shard   uint32
		outcome router.Outcome
		reason  router.Reason
		addr    string
	}{
		{router.LogID{1}, 0, router.Local, router.NoReason, "a1"},
		{router.LogID{1}, 1, router.Refused, router.Opening, "a1"},
		{router.LogID{1}, 2, router.Forward, router.NoReason, "a2"},
		{router.LogID{1}, 3, router.Refused, router.NoLeader, ""},
		{router.LogID{1}, 4, router.Refused, router.Quarantined, ""},
		{router.LogID{1}, 5, router.Refused, router.Exhausted, ""},
		{router.LogID{1}, 6, router.Refused, router.NoSuchShard, ""},
		{router.LogID{1}, 1 << 31, router.Refused, router.NoSuchShard, ""},
		{router.LogID{2}, 0, router.Refused, router.UnknownLog, ""},
	} {
		r := m.Resolve(c.id, c.shard)
		if r.Outcome != c.outcome || r.Reason != c.reason || r.Address != c.addr {
			t.Errorf("Resolve(%v, %d) = %+v, want %+v", c.id, c.shard, r, c)
		}
	}
}

// An empty table refuses: there is no default owner.
func TestEmptyTableRefuses(t *testing.T) {
	if r := router.NewTable("n1").Load().Resolve(router.LogID{1}, 0); r.Outcome != router.Refused {
		t.Fatalf("an empty table answered %+v", r)
	}
}

func TestSwapIsWhole(t *testing.T) {
	tb := router.NewTable("n1")
	before := tb.Load()
	tb.Swap(sample())
	if _, ok := before.ByName("default/default/orders"); ok {
		t.Error("a held snapshot changed under its reader")
	}
	if l, ok := tb.Load().ByName("default/default/orders"); !ok || l.ID != (router.LogID{1}) {
		t.Error("the swapped snapshot does not know its log")
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	tb := router.NewTable("n1")
	tb.Swap(sample())
	if n := testing.AllocsPerRun(100, func() { tb.Load().Resolve(router.LogID{1}, 0) }); n != 0 {
		t.Fatalf("a resolve allocates %v times", n)
	}
}

func BenchmarkResolve(b *testing.B) {
	tb := router.NewTable("n1")
	tb.Swap(sample())
	for b.Loop() {
		if tb.Load().Resolve(router.LogID{1}, 0).Outcome != router.Local {
			b.Fatal("not local")
		}
	}
}
