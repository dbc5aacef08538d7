// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Walk takes random paths of at most o.Depth actions, and the end behind each when o.Finish is not 0, until it has seen
// o.States states or o.Time is over: it comes where Run cannot. States are counted as often as they are met. The path of a
// violation is shortened as far as leaving out actions goes.
func Walk[A comparable, S System[A]](start func() S, rng *rand.Rand, o Options) (r Result[A]) {
	began := time.Now()
	defer func() { r.Took = time.Since(began) }()
	o.Depth, o.States = max(o.Depth, 1), max(o.States, 1)
	r.Depth = o.Depth
	for r.States < o.States && (o.Time <= 0 || time.Since(began) < o.Time) {
		path, err := walk(start(), rng, o, &r)
		if err != nil {
			r.Violation = shortened[A](start, path, o.Finish > 0, err)
			return r
		}
	}
	r.Ended = fmt.Sprintf("having seen %d states", r.States)
	return r
}

func walk[A comparable, S System[A]](sys S, rng *rand.Rand, o Options, r *Result[A]) (path []A, err error) {
	var actions []A
	for range o.Depth {
		if actions = sys.Actions(actions[:0]); len(actions) == 0 {
			break
		}
		a := actions[rng.IntN(len(actions))]
		path = append(path, a)
		r.States++
		r.Transitions++
		if err := take(sys, a); err != nil {
			return path, err
		}
	}
	if f, ok := any(sys).(interface{ Finish() error }); ok && o.Finish > 0 {
		r.Finished++
		if err := guard(f.Finish); err != nil {
			return path, fmt.Errorf("led to its end: %w", err)
		}
	}
	return path, nil
}

// take lets an action happen, and checks.
func take[A comparable](sys System[A], a A) error {
	if err := guard(func() error { return sys.Apply(a) }); err != nil {
		return err
	}
	return guard(sys.Check)
}

// errNot says that a path is none: an action cannot happen where it stands.
var errNot = errors.New("no such action")

// shortened leaves out what is not needed for the path to break a promise; which promise may change.
func shortened[A comparable, S System[A]](start func() S, path []A, finish bool, why error) *Violation[A] {
	for again := true; again; {
		again = false
		for n := max(len(path)/2, 1); n > 0; n /= 2 {
			for i := len(path) - n; i >= 0; i -= n {
				without := slices.Delete(slices.Clone(path), i, i+n)
				if _, err := retake(start(), without, finish); err != nil && !errors.Is(err, errNot) {
					path, why, again = without, err, true
				}
				i = min(i, len(path))
			}
		}
	}
	choices, _ := retake(start(), path, finish)
	return &Violation[A]{Err: why, Path: choices, Actions: path}
}

// retake takes a path of actions, and says which choices they were.
func retake[A comparable, S System[A]](sys S, path []A, finish bool) (choices Path, err error) {
	for _, a := range path {
		i := slices.Index(sys.Actions(nil), a)
		if i < 0 {
			return choices, errNot
		}
		choices = append(choices, i)
		if err := take(sys, a); err != nil {
			return choices, err
		}
	}
	if f, ok := any(sys).(interface{ Finish() error }); ok && finish {
		if err := guard(f.Finish); err != nil {
			return choices, fmt.Errorf("led to its end: %w", err)
		}
	}
	return choices, nil
}
