// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"margay.dev/cluster/history"
)

// Verdicts are what was found of each key.
type Verdicts struct {
	Good, Bad int
	Stricter  int // bad, and good to one who does not know that time does not fall
	Unjudged  int // by the other
}

// Compare holds the search against another, which knows nothing of what this one leaves out. It must not find good what
// that one does not.
func (r *Recorder) Compare(v *Verdicts, steps int) error {
	c := checker{attempts: slices.Clone(r.attempts), skew: r.Skew.Microseconds()}
	c.gather()
	c.resolve()
	for _, key := range c.keys {
		attempts := c.byKey[key]
		m := c.model(key)
		if m == nil {
			continue
		}
		m.steps = steps
		good, _ := m.order(m.inputs(attempts))
		spent := m.spent()
		m.steps = steps
		reference := m.porcupine(attempts)
		switch {
		case m.spent():
			v.Unjudged++
		case spent:
			return fmt.Errorf("key %q: gave up on what is %t", key, reference)
		case good && !reference:
			return fmt.Errorf("key %q: found good, and it is not", key)
		case good:
			v.Good++
		case reference:
			v.Stricter++
		default:
			v.Bad++
		}
	}
	return nil
}

// Spoil changes one thing in what was answered, or when.
func (r *Recorder) Spoil(rng *rand.Rand) {
	pick := func() *attempt { return &r.attempts[rng.IntN(len(r.attempts))] }
	a, b := pick(), pick()
	for range 20 {
		if a.Outcome == history.Acked {
			break
		}
		a = pick()
	}
	for range 20 {
		if b.Key == a.Key && b.Outcome == history.Acked && b != a {
			break
		}
		b = pick()
	}
	switch rng.IntN(6) {
	case 0:
		a.Version, a.Got, a.Expires, b.Version, b.Got, b.Expires = b.Version, b.Got, b.Expires, a.Version, a.Got, a.Expires
	case 1:
		a.Version, a.Got, a.Expires = b.Version, b.Got, b.Expires
	case 2:
		if a.Op == Get {
			a.Version, a.Got, a.Expires = 0, "", nil
		}
	case 3:
		a.Sum++
	case 4:
		a.began, b.began, a.ended, b.ended = b.began, a.began, b.ended, a.ended
		a.NotBefore, b.NotBefore, a.NotAfter, b.NotAfter = b.NotBefore, a.NotBefore, b.NotAfter, a.NotAfter
	case 5:
		a.Outcome = history.Refused
	}
}
