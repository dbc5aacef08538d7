// SPDX-License-Identifier: Apache-2.0

package caches_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// Values that are touched at one moment need not fit one batch, though the requests do: each is touched.
func TestLargeValuesTouchedAtOnce(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.CacheSpec{Name: "c"})
	k := n.Connect().Cache("c")
	ctx := within(t)
	const values = 20
	for i := range values {
		if _, err := k.Put(ctx, fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range values {
		wg.Go(func() {
			if _, err := k.Touch(ctx, fmt.Sprint(i), time.Hour); err != nil {
				t.Errorf("touch %d: %v", i, err)
			}
		})
	}
	for i := range values {
		wg.Go(func() {
			if _, err := k.Put(ctx, fmt.Sprint("small", i), []byte("v")); err != nil {
				t.Errorf("put beside them: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range values {
		e, err := k.Get(ctx, fmt.Sprint(i))
		if err != nil || len(e.Value) != 1<<20 || e.Value[0] != byte(i) || e.Expires.IsZero() {
			t.Errorf("key %d: %d bytes until %v: %v", i, len(e.Value), e.Expires, err)
		}
	}
}
