// SPDX-License-Identifier: Apache-2.0

package token

import (
	"slices"
	"testing"
)

func limited() *Claims {
	return &Claims{Grants: []Grant{
		{Actions: []Action{Publish}, Resource: "t/n/x", Keys: []string{"meter/+/data", "log/#"}},
		{Actions: []Action{Publish, Subscribe}, Resource: "t/n/*", Keys: []string{"own"}},
		{Actions: []Action{Subscribe}, Resource: "t/n/y"},
		{Actions: []Action{Any}, Resource: "t/m/*", Keys: []string{"#"}},
		{Actions: []Action{Publish}, Resource: "t/k/*", Keys: []string{"a/#/b"}},
	}}
}

func TestAllowsKey(t *testing.T) {
	c := limited()
	for _, tc := range []struct {
		action   Action
		resource string
		key      string
		want     bool
	}{
		{Publish, "t/n/x", "meter/7/data", true},
		{Publish, "t/n/x", "meter/7/state", false},
		{Publish, "t/n/x", "log", true},
		{Publish, "t/n/x", "own", true},
		{Publish, "t/n/y", "log", false},
		{Publish, "t/n/y", "own", true},
		{Publish, "t/n/x", "", false},
		{Subscribe, "t/n/x", "log", false},
		{Subscribe, "t/n/x", "own", true},
		{Subscribe, "t/n/y", "anything", true},
		{Publish, "u/n/x", "own", false},
		{Publish, "t/m/x", "", true},
		{Publish, "t/k/x", "a/c/b", false}, // no pattern: it opens nothing
	} {
		if got := c.AllowsKey(tc.action, tc.resource, []byte(tc.key)); got != tc.want {
			t.Errorf("%s of %q on %q: %v", tc.action, tc.key, tc.resource, got)
		}
	}
	for resource, want := range map[string]bool{"t/n/x": false, "t/n/y": true, "t/m/x": false} {
		if c.AllowsKey(Subscribe, resource, nil) != want {
			t.Errorf("no key on %q: %v", resource, !want)
		}
	}
	// A grant limited by keys is none for what knows of no keys, whatever its actions say.
	for _, a := range []Action{Manage, Consume, Read, Write, Any} {
		if c.Allows(a, "t/m/x") || c.AllowsKey(a, "t/m/x", []byte("k")) || c.AllowsSome(a, "t", "m") {
			t.Errorf("%s is allowed by a grant of keys", a)
		}
	}
	if !c.Allows(Publish, "t/n/x") || !c.AllowsSome(Subscribe, "t", "n") || !c.Allows(Subscribe, "t/m/x") {
		t.Error("a grant of keys is no grant")
	}
}

func TestKeyLimits(t *testing.T) {
	c := limited()
	for _, tc := range []struct {
		action   Action
		resource string
		patterns []string
		limited  bool
	}{
		{Publish, "t/n/x", []string{"meter/+/data", "log/#", "own"}, true},
		{Subscribe, "t/n/x", []string{"own"}, true},
		{Subscribe, "t/n/y", nil, false},
		{Manage, "t/m/x", nil, true},
		{Publish, "u/n/x", nil, true},
	} {
		patterns, limited := c.KeyLimits(tc.action, tc.resource)
		if !slices.Equal(patterns, tc.patterns) || limited != tc.limited {
			t.Errorf("%s on %q: %q, %v", tc.action, tc.resource, patterns, limited)
		}
	}
	if got := c.Grants[0].Keys; !slices.Equal(got[:cap(got)], []string{"meter/+/data", "log/#"}) {
		t.Errorf("asking has changed the grant: %q", got[:cap(got)])
	}
}

func TestSignChecksKeys(t *testing.T) {
	f := newFixture(t)
	grant := func(keys []string, actions ...Action) error {
		c := f.claims()
		c.Grants = []Grant{{Actions: actions, Resource: "*", Keys: keys}}
		_, err := Sign(f.private, "k1", c)
		return err
	}
	if err := grant([]string{"a/#", "+"}, Publish, Subscribe); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"an empty pattern":      grant([]string{""}, Publish),
		"no pattern":            grant([]string{"a/#", "a/#/b"}, Publish),
		"keys and manage":       grant([]string{"a"}, Publish, Manage),
		"keys and every action": grant([]string{"a"}, Any),
	} {
		if err == nil {
			t.Errorf("%s is signed", name)
		}
	}
}

func TestKeysTravel(t *testing.T) {
	f := newFixture(t)
	keys := []string{"meter/+/data", "log/#"}
	c, err := f.verifier().Verify(f.sign(t, func(c *Claims) {
		c.Grants = []Grant{{Actions: []Action{Publish}, Resource: "*", Keys: keys}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got, limited := c.KeyLimits(Publish, "t/n/x"); !limited || !slices.Equal(got, keys) {
		t.Errorf("%q, %v", got, limited)
	}
	if c.AllowsKey(Publish, "t/n/x", []byte("other")) || !c.AllowsKey(Publish, "t/n/x", []byte("log/1")) {
		t.Error("the keys do not limit")
	}
}

func TestAllowsKeyDoesNotAllocate(t *testing.T) {
	c, key := limited(), []byte("meter/7/data")
	if n := testing.AllocsPerRun(100, func() { _ = c.AllowsKey(Publish, "t/n/x", key) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAllowsKey(b *testing.B) {
	c, key := limited(), []byte("meter/7/data")
	b.ReportAllocs()
	for b.Loop() {
		if !c.AllowsKey(Publish, "t/n/x", key) {
			b.Fatal("denied")
		}
	}
}
