// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"math/rand/v2"
	"testing"

	"margay.dev/cluster/history/cache"
)

// What is asked of one key.
var asked = map[string][]cache.Op{
	"values":  {cache.Get, cache.Get, cache.Put, cache.Put, cache.Delete},
	"sums":    {cache.Get, cache.Get, cache.Add, cache.Add, cache.Add, cache.Delete},
	"touched": {cache.Get, cache.Get, cache.Put, cache.Touch, cache.Delete},
}

// What the search says of short histories, good and spoiled, is what one says that leaves nothing out: but for a few of the
// spoiled ones, in which a read saw later that a value was gone than one behind it, and what happened in between cannot be.
func TestSearchAgainstAnother(t *testing.T) {
	for name, ops := range asked {
		t.Run(name, func(t *testing.T) {
			var v cache.Verdicts
			for seed := range uint64(600) {
				s := newShop(seed, "")
				s.only, s.losing, s.width, s.steps = ops, 3+int(seed%8), 4+int(seed%5), 60
				s.run()
				for range seed % 3 {
					s.Spoil(rand.New(rand.NewPCG(seed, 2)))
				}
				stricter := v.Stricter
				if err := s.Compare(&v, 300_000); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if v.Stricter > stricter && seed%3 == 0 {
					t.Fatalf("seed %d: a good history was found bad", seed)
				}
			}
			t.Logf("%+v", v)
			if v.Good < 200 || v.Bad < 50 || v.Stricter > v.Bad/50 {
				t.Errorf("too little of something: %+v", v)
			}
		})
	}
}

// Long histories in which much overlaps and much is lost are judged within few steps.
func TestLongHistories(t *testing.T) {
	for name, ops := range asked {
		t.Run(name, func(t *testing.T) {
			caught, unjudged := 0, 0
			for seed := range uint64(60) {
				s := newShop(seed, "")
				s.only, s.losing, s.width, s.steps, s.Steps = ops, 60+int(seed%40), 10+int(seed%30), 1800, 500_000
				if found := s.run(); len(found) > 0 {
					t.Errorf("seed %d, %d attempts: %v", seed, s.count, found)
				}
				s.Spoil(rand.New(rand.NewPCG(seed, 2)))
				for _, v := range s.Check() {
					if v.Kind != cache.Undecided {
						caught++
						break
					}
					unjudged++
				}
			}
			t.Logf("%d spoiled histories were caught, %d not judged", caught, unjudged)
			if caught < 25 || unjudged > 10 {
				t.Errorf("%d spoiled histories were caught, %d not judged", caught, unjudged)
			}
		})
	}
}
