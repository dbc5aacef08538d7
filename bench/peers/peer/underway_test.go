// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"testing"
)

func TestOldestIsToldOfFirst(t *testing.T) {
	type told struct {
		at int64
		n  int
		ok bool
	}
	var got []told
	u := NewUnderWay(2, func(at int64, n int, err error) { got = append(got, told{at, n, err == nil}) })
	add := func(at int64) {
		t.Helper()
		if err := u.Add(at); err != nil {
			t.Fatal(err)
		}
	}
	add(1)
	add(2)
	u.Tell(1, nil)
	for _, at := range []int64{2, 2, 3, 4} { // more than there is room for, and around the end of the ring
		add(at)
	}
	u.Tell(4, nil)
	if !u.Drop() {
		t.Fatal("the youngest was not there to be dropped")
	}
	add(5)
	u.Fail(errors.New("gone"))
	if u.Drop() || u.Add(6) == nil {
		t.Error("went on after it had failed")
	}
	want := []told{{1, 1, true}, {2, 3, true}, {3, 1, true}, {5, 1, false}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
