// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"strconv"
	"strings"
)

// Path says which of the actions was taken in each state, from the start on. It prints as numbers with dots between.
type Path []int

// String is what ParsePath reads.
func (p Path) String() string {
	var b strings.Builder
	for i, c := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strconv.Itoa(c))
	}
	return b.String()
}

// ParsePath reads what a violation printed.
func ParsePath(s string) (Path, error) {
	var p Path
	for part := range strings.SplitSeq(s, ".") {
		c, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("path %q: want the numbers that a violation printed, with dots between: %w", s, err)
		}
		p = append(p, int(c))
	}
	return p, nil
}

// Violation is a promise that was broken, and a shortest way to break it.
type Violation[A comparable] struct {
	Err     error
	Path    Path
	Actions []A
}

// String tells what broke and how to get there.
func (v *Violation[A]) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nafter %d actions (path %s):\n", v.Err, len(v.Path), v.Path)
	for i, a := range v.Actions {
		fmt.Fprintf(&b, "%4d  %v\n", i+1, a)
	}
	return b.String()
}

// Replay takes a path from the start on, and the end behind it when finish says so. It tells trace, which may be nil, of each
// action before it happens and of the system after it; its error is the promise that broke on the way, if one did.
func Replay[A comparable, S System[A]](start S, path Path, finish bool, trace func(a A, before bool, sys S)) error {
	for i, c := range path {
		actions := start.Actions(nil)
		if c < 0 || c >= len(actions) {
			return fmt.Errorf("action %d of the path is choice %d of %d: this is a path of another system", i+1, c, len(actions))
		}
		if trace != nil {
			trace(actions[c], true, start)
		}
		err := guard(func() error { return start.Apply(actions[c]) })
		if err == nil {
			err = guard(start.Check)
		}
		if trace != nil {
			trace(actions[c], false, start)
		}
		if err != nil {
			return fmt.Errorf("action %d: %w", i+1, err)
		}
	}
	if f, ok := any(start).(interface{ Finish() error }); ok && finish {
		if err := guard(f.Finish); err != nil {
			return fmt.Errorf("led to its end: %w", err)
		}
	}
	return nil
}

// named is the actions of a path, as far as they can be told: the last may be one that panics.
func named[A comparable](sys System[A], path Path) (actions []A) {
	for _, c := range path {
		var can []A
		if guard(func() error { can = sys.Actions(nil); return nil }) != nil || c >= len(can) {
			return actions
		}
		actions = append(actions, can[c])
		if guard(func() error { return sys.Apply(can[c]) }) != nil {
			return actions
		}
	}
	return actions
}
