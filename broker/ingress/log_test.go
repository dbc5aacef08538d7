// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"
	"time"
)

// Strangers cannot fill a disk with lines, and what was not shown is counted.
func TestSamplerBoundsTheLog(t *testing.T) {
	var s sampler
	second := time.Unix(1000, 0)
	for i := range 100 {
		ok, hidden := s.take(second)
		if ok != (i < strangersPerSecond) || hidden > 0 {
			t.Fatalf("line %d of a second: %v, %d not shown", i, ok, hidden)
		}
	}
	if ok, hidden := s.take(second.Add(time.Second)); !ok || hidden != 100-strangersPerSecond {
		t.Errorf("the first of the next second: %v, %d not shown", ok, hidden)
	}
	if ok, hidden := s.take(second.Add(time.Second)); !ok || hidden > 0 {
		t.Errorf("the second: %v, %d not shown: they were told before", ok, hidden)
	}
}
