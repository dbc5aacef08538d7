// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"
)

// node is a state that was visited: a system of that state is made again when it is needed, for millions of them would not
// fit in memory.
type node struct {
	key    uint64
	parent int32
	choice uint16 // which of the parent's actions led here
}

// search is one exploration under way.
type search[A comparable, S System[A]] struct {
	Result[A]
	start   func() S
	o       Options
	began   time.Time
	nodes   []node // in the order of discovery, which is that of their depth
	visited map[uint64]struct{}

	// The path to the node that is being expanded, with a system at each of its nodes. Neighbors share most of theirs.
	path    []int32
	systems []S

	actions []A
	want    []int32 // scratch
}

// errEnd says that a budget is used up.
var errEnd = errors.New("the end of a budget")

// ErrNondeterministic says that one path led to two states: what is explored is then not what runs, or a clone shares what
// changes.
var ErrNondeterministic = errors.New("repeating the same actions leads elsewhere")

func (s *search[A, S]) run() {
	first := s.start()
	s.visited[first.Fingerprint()] = struct{}{}
	s.nodes = append(s.nodes, node{key: first.Fingerprint(), parent: -1})
	s.States = 1
	if err := guard(first.Check); err != nil {
		s.violate(err, 0, -1)
		return
	}
	for layer := 0; layer < len(s.nodes); s.Depth++ {
		if s.Depth >= s.o.Depth {
			s.Ended = fmt.Sprintf("the bound of %d actions", s.o.Depth)
			return
		}
		end := len(s.nodes)
		for ; layer < end; layer++ {
			if s.expand(int32(layer)) != nil {
				return
			}
		}
	}
	s.Complete = true
	s.Depth-- // the last layer had no successors
}

// expand visits all that one action leads to from a node.
func (s *search[A, S]) expand(n int32) error {
	sys, err := s.at(n)
	if err != nil {
		s.violate(err, n, -1)
		return err
	}
	s.actions = sys.Actions(s.actions[:0])
	if len(s.actions) > math.MaxUint16 {
		s.violate(fmt.Errorf("%d actions in one state", len(s.actions)), n, -1)
		return errEnd
	}
	if f, ok := any(sys).(interface{ Finish() error }); ok && s.o.Finish > 0 && int(n)%s.o.Finish == 0 {
		if c, ok := s.another(n, sys); ok {
			f = any(c).(interface{ Finish() error })
		}
		s.Finished++
		if err := guard(f.Finish); err != nil {
			s.violate(fmt.Errorf("led to its end: %w", err), n, -1)
			return err
		}
	}
	for i, a := range s.actions {
		next := sys
		if i+1 < len(s.actions) { // the last may have the system itself
			var ok bool
			if next, ok = s.another(n, sys); !ok {
				return errEnd
			}
		}
		if err := s.visit(n, i, a, next); err != nil {
			return err
		}
	}
	return s.budget()
}

// visit lets an action happen to a system that is the caller's to give, and notes the state when it is a new one.
func (s *search[A, S]) visit(n int32, i int, a A, sys S) error {
	s.Transitions++
	if err := guard(func() error { return sys.Apply(a) }); err != nil {
		s.violate(err, n, i)
		return err
	}
	key := sys.Fingerprint()
	if _, seen := s.visited[key]; seen {
		return nil
	}
	s.visited[key] = struct{}{}
	s.nodes = append(s.nodes, node{key: key, parent: n, choice: uint16(i)})
	s.States++
	if err := guard(sys.Check); err != nil {
		s.violate(err, n, i)
		return err
	}
	return nil
}

// another returns a second system in the state of node n, given the first.
func (s *search[A, S]) another(n int32, sys S) (S, bool) {
	if c, ok := any(sys).(interface{ Clone() S }); ok {
		return c.Clone(), true
	}
	c, err := s.repeat(n)
	if err != nil {
		s.violate(err, n, -1)
		return c, false
	}
	return c, true
}

// at returns a system in the state of a node, for the caller to change.
func (s *search[A, S]) at(n int32) (sys S, err error) {
	if _, ok := any(sys).(interface{ Clone() S }); !ok {
		return s.repeat(n)
	}
	if last := len(s.path) - 1; last >= 0 && s.path[last] == s.nodes[n].parent {
		return s.step(s.systems[last], n)
	}
	s.want = s.want[:0]
	for m := n; m >= 0; m = s.nodes[m].parent {
		s.want = append(s.want, m)
	}
	depth := len(s.want) - 1 // want[depth] is the start
	common := 0
	for common < min(len(s.path), depth) && s.path[common] == s.want[depth-common] {
		common++
	}
	s.path, s.systems = s.path[:common], s.systems[:common]
	if common == 0 && depth > 0 {
		s.path, s.systems = append(s.path, 0), append(s.systems, s.start())
		common = 1
	}
	if depth == 0 {
		return s.start(), nil
	}
	for ; common < depth; common++ {
		m := s.want[depth-common]
		next, err := s.step(s.systems[common-1], m)
		if err != nil {
			return next, err
		}
		s.path, s.systems = append(s.path, m), append(s.systems, next)
	}
	return s.step(s.systems[depth-1], n)
}

// step returns what the choice of node n makes of a copy of its parent's system.
func (s *search[A, S]) step(parent S, n int32) (S, error) {
	next := any(parent).(interface{ Clone() S }).Clone()
	return next, s.again(next, n)
}

// repeat takes the whole path to a node.
func (s *search[A, S]) repeat(n int32) (S, error) {
	sys := s.start()
	var path []int32
	for m := n; m > 0; m = s.nodes[m].parent {
		path = append(path, m)
	}
	for _, m := range slices.Backward(path) {
		if err := s.again(sys, m); err != nil {
			return sys, err
		}
	}
	return sys, nil
}

// again takes the step to a node that was taken before.
func (s *search[A, S]) again(sys S, n int32) error {
	actions := sys.Actions(nil)
	i := int(s.nodes[n].choice)
	if i >= len(actions) {
		return ErrNondeterministic
	}
	if err := guard(func() error { return sys.Apply(actions[i]) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNondeterministic, err)
	}
	if sys.Fingerprint() != s.nodes[n].key {
		return ErrNondeterministic
	}
	return nil
}

func (s *search[A, S]) budget() error {
	switch {
	case s.States >= s.o.States:
		s.Ended = fmt.Sprintf("the budget of %d states", s.o.States)
	case s.o.Time > 0 && time.Since(s.began) >= s.o.Time:
		s.Ended = fmt.Sprintf("the budget of %s", s.o.Time)
	default:
		return nil
	}
	return errEnd
}

// violate notes the first violation: that of node n, or of one of its actions.
func (s *search[A, S]) violate(err error, n int32, choice int) {
	if s.Violation != nil {
		return
	}
	var choices []int
	if choice >= 0 {
		choices = append(choices, choice)
	}
	for m := n; m > 0; m = s.nodes[m].parent {
		choices = append(choices, int(s.nodes[m].choice))
	}
	reverse := make(Path, len(choices))
	for i, c := range choices {
		reverse[len(choices)-1-i] = c
	}
	s.Violation = &Violation[A]{Err: err, Path: reverse, Actions: named[A](s.start(), reverse)}
}

// guard makes an error of a panic: of the code that is explored it is a finding like any other.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
