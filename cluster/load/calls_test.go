// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// As many calls as may be under way are, and each is told of once.
func TestCallsAreUnderWayTogether(t *testing.T) {
	const n = 8
	var together sync.WaitGroup
	together.Add(n)
	var mu sync.Mutex
	told, failed := 0, 0
	c := NewCalls(n, func(_ int64, k int, err error) {
		mu.Lock()
		defer mu.Unlock()
		told += k
		if err != nil {
			failed++
		}
	}, func(key string, value []byte) error {
		together.Done()
		together.Wait() // for all the others
		if key == "bad" || string(value) != "v" {
			return errors.New("refused")
		}
		return nil
	})
	value := []byte("v")
	for i := range n {
		key := "good"
		if i == 3 {
			key = "bad"
		}
		if err := c.Do(t.Context(), key, value, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	value[0] = 'x' // ours again
	c.Close()
	if told != n || failed != 1 {
		t.Errorf("told of %d, %d of them failed", told, failed)
	}
}

func TestOneCallIsMadeByTheCaller(t *testing.T) {
	told := 0
	c := NewCalls(1, func(int64, int, error) { told++ }, func(string, []byte) error { return nil })
	if err := c.Do(context.Background(), "k", nil, 0); err != nil || told != 1 {
		t.Errorf("%v, told of %d", err, told)
	}
	c.Close()
}
