// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"errors"
	"testing"

	"margay.dev/broker/fanout"
)

// TestWhoAsksIsToldOfTheEndOnce: whoever asks before or after a hub's end is told once, and who has forgotten it never.
func TestWhoAsksIsToldOfTheEndOnce(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	gone := errors.New("gone")
	told := map[string]int{}
	tell := func(who string) func(error) {
		return func(err error) {
			if !errors.Is(err, gone) || !errors.Is(h.Err(), gone) {
				t.Errorf("%s is told %v", who, err)
			}
			told[who]++
		}
	}
	h.OnEnd(tell("before"))
	forget := h.OnEnd(tell("forgotten"))
	forget()
	forget()
	h.Close(gone)
	h.Close(errors.New("again"))
	h.OnEnd(tell("after"))()
	if len(told) != 2 || told["before"] != 1 || told["after"] != 1 {
		t.Errorf("told %v", told)
	}
}
