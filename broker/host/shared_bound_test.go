// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"margay.dev/wire/batch"
)

// TestSharedBatchesAreBounded: however many are asked for, what is kept stays within its bytes, and the newest stay.
func TestSharedBatchesAreBounded(t *testing.T) {
	var c shared
	bl := batch.NewBuilder(batch.Limits{})
	if err := bl.Add(batch.Record{Value: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	for i := range uint64(n) {
		c.put(sharedKey{1, i}, b)
		if again := c.put(sharedKey{1, i}, b); again != c.get(sharedKey{1, i}) {
			t.Fatal("what is kept twice is not shared")
		}
	}
	kept := 0
	for i := range uint64(n) {
		if c.get(sharedKey{1, i}) != nil {
			kept++
		} else if kept > 0 {
			t.Fatalf("%d is gone, and older ones are not", i)
		}
	}
	if kept != sharedBytes/(len(b)+placeBytes) || c.bytes > sharedBytes || c.get(sharedKey{2, n - 1}) != nil {
		t.Fatalf("%d of them are kept, in %d bytes", kept, c.bytes)
	}
}
