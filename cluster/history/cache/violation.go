// SPDX-License-Identifier: Apache-2.0

package cache

import "fmt"

// Kind says what a history breaks.
type Kind uint8

const (
	// Order: what was answered of a key fits no order in which things happened one at a time, each between its request and
	// its answer.
	Order Kind = iota + 1
	// VersionBack: an attempt that began after another was acknowledged got a lower version.
	VersionBack
	// Clash: one version was given to two changes.
	Clash
	// Stored: a value whose answer said "certainly not applied" was seen.
	Stored
	// Phantom: a value was seen that nobody wrote, or a change of a watcher that nobody made.
	Phantom
	// Altered: a version was seen with another value, key or kind than it has.
	Altered
	// Twice: one attempt was stored more than once.
	Twice
	// Condition: an attempt conflicts with the very version that it asked for.
	Condition
	// Early: a value was said to have expired before its time, or one that has no such time.
	Early
	// Missed: a watcher was led past a change.
	Missed
	// Repeated: a watcher got a change again, or one from behind where it was.
	Repeated
	// Unmarked: a watcher's snapshot was not marked as complete before changes came, or at all.
	Unmarked
	// Snapshot: a watcher's snapshot is older than where its changes begin.
	Snapshot
	// Folded: what a watcher was told comes to another state than the store had there.
	Folded
	// Undecided: the search for an order was given up. It is no broken promise, nor a kept one.
	Undecided
	// Unusable: the history itself cannot be judged.
	Unusable
)

// kinds holds each kind's name and the guarantee of docs/guarantees.md that it breaks.
var kinds = [...]struct{ name, guarantee string }{
	Order:       {"order", "C1"},
	VersionBack: {"version back", "C1"},
	Clash:       {"clash", "S3"},
	Stored:      {"stored", "R5"},
	Phantom:     {"phantom", "S3"},
	Altered:     {"altered", "S2"},
	Twice:       {"twice", "S7"},
	Condition:   {"condition", "R16"},
	Early:       {"early", "C2"},
	Missed:      {"missed", "S10"},
	Repeated:    {"repeated", "S10"},
	Unmarked:    {"unmarked", "S10"},
	Snapshot:    {"snapshot", "S10"},
	Folded:      {"folded", "S10"},
	Undecided:   {"undecided", ""},
	Unusable:    {"unusable history", ""},
}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kinds) {
		return "invalid"
	}
	return kinds[k].name
}

// Guarantee returns the id of the broken promise, empty where none is.
func (k Kind) Guarantee() string {
	if int(k) >= len(kinds) {
		return ""
	}
	return kinds[k].guarantee
}

// Violation is one broken promise.
type Violation struct {
	Kind   Kind
	Key    string
	Detail string
}

func (v Violation) String() string {
	id := v.Kind.Guarantee()
	if id == "" {
		id = "-"
	}
	return fmt.Sprintf("%s %s: key %q: %s", id, v.Kind, v.Key, v.Detail)
}
