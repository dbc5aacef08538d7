// SPDX-License-Identifier: Apache-2.0

package token

import (
	"fmt"
	"strings"

	"margay.dev/wire/topic"
)

// Action is what a grant lets its holder do to a resource.
type Action string

// The actions of this version. Any stands for all of them, also for those a later version adds.
const (
	Publish   Action = "publish"   // append to a stream
	Subscribe Action = "subscribe" // read a stream
	Consume   Action = "consume"   // claim and settle queue messages
	Read      Action = "read"      // read a cache
	Write     Action = "write"     // change a cache
	Manage    Action = "manage"    // create, change, delete and list through the control plane
	Any       Action = "*"
)

// AllResources is the pattern that matches every resource of every tenant.
const AllResources = "*"

// Grant allows actions on the resources that match a pattern. The pattern is "tenant/namespace/name", where each level
// may be "*", or "*" alone for everything. A pattern of any other form matches nothing: a grant written by a later
// version, with a meaning this one does not know, must not turn into a wider one.
//
// Keys, when there are any, narrow the grant to records whose key one of these topic patterns matches. Only publishing and
// subscribing know of keys, so such a grant allows nothing else.
type Grant struct {
	Actions  []Action `json:"actions"`
	Resource string   `json:"resource"`
	Keys     []string `json:"keys,omitempty"`
}

// FullGrant allows everything everywhere: what the key that `serve` makes for its owner carries.
func FullGrant() Grant { return Grant{Actions: []Action{Any}, Resource: AllResources} }

func (g *Grant) has(a Action) bool {
	if len(g.Keys) > 0 && !knowsKeys(a) {
		return false
	}
	for _, have := range g.Actions {
		if have == Any || have == a {
			return true
		}
	}
	return false
}

// knowsKeys: of any other action a limit by keys would be silently ignored.
func knowsKeys(a Action) bool { return a == Publish || a == Subscribe }

// matchesKey reports whether the grant covers records of the key; nil is none.
func (g *Grant) matchesKey(key []byte) bool {
	if len(g.Keys) == 0 {
		return true
	}
	for _, p := range g.Keys {
		if key != nil && topic.Match(p, key) {
			return true
		}
	}
	return false
}

func (g *Grant) allows(a Action, resource string) bool {
	return g.has(a) && matches(g.Resource, resource)
}

// reaches asks the pattern for a name that it matches: its own, whatever that is.
func (g *Grant) reaches(a Action, tenant, namespace string) bool {
	name := "*"
	if i := strings.LastIndexByte(g.Resource, '/'); i >= 0 {
		name = g.Resource[i+1:]
	}
	return g.has(a) && matches(g.Resource, tenant+"/"+namespace+"/"+name)
}

func (g *Grant) check() error {
	if len(g.Actions) == 0 {
		return fmt.Errorf("grant on %q: no action", g.Resource)
	}
	for _, a := range g.Actions {
		switch a {
		case Publish, Subscribe, Consume, Read, Write, Manage, Any:
		default:
			return fmt.Errorf("grant on %q: unknown action %q", g.Resource, a)
		}
	}
	if err := g.checkKeys(); err != nil {
		return err
	}
	if g.Resource == AllResources {
		return nil
	}
	levels := strings.Split(g.Resource, "/")
	if len(levels) != 3 {
		return fmt.Errorf("grant on %q: a resource is tenant/namespace/name or *", g.Resource)
	}
	for _, l := range levels {
		if l == "" || (l != "*" && strings.ContainsAny(l, "*{}#+")) {
			return fmt.Errorf("grant on %q: level %q is neither a name nor *", g.Resource, l)
		}
	}
	return nil
}

func (g *Grant) checkKeys() error {
	for _, p := range g.Keys {
		if err := topic.Validate(p); err != nil {
			return fmt.Errorf("grant on %q: key %w", g.Resource, err)
		}
	}
	if len(g.Keys) == 0 {
		return nil
	}
	for _, a := range g.Actions {
		if !knowsKeys(a) {
			return fmt.Errorf("grant on %q: keys limit %q and %q only, not %q", g.Resource, Publish, Subscribe, a)
		}
	}
	return nil
}

// matches compares level by level without splitting into slices: it runs once per publish and must not allocate.
// A resource is always a full address of three levels that are not empty; anything else matches no pattern, so that
// a caller's mistake refuses instead of admitting.
func matches(pattern, resource string) bool {
	if pattern == AllResources {
		pattern = "*/*/*"
	}
	for level := range 3 {
		r, restResource, moreResource := strings.Cut(resource, "/")
		p, restPattern, morePattern := strings.Cut(pattern, "/")
		last := level == 2
		if r == "" || moreResource == last || morePattern == last || (p != "*" && p != r) {
			return false
		}
		resource, pattern = restResource, restPattern
	}
	return true
}
