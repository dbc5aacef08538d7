// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"margay.dev/broker/fanout"
)

// Who waits for an offset goes on when it is committed and not before, whoever else waits or gives up.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const offsets = 60
		h := fanout.NewHub(0, fanout.Position{})
		rng := rand.New(rand.NewPCG(1, 2))
		went := make([]int, offsets+1) // how many went on, by what they waited for
		giveUp, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		why := errors.New("enough")
		var gaveUp atomic.Int64
		for _, offset := range rng.Perm(offsets) {
			go func() {
				if err := h.Await(t.Context(), uint64(offset)+1); err != nil {
					t.Error(err)
				}
				went[offset+1]++
			}()
			go func() {
				if err := h.Await(giveUp, offsets+1+uint64(offset)); !errors.Is(err, why) {
					t.Errorf("waited for an offset nobody wrote: %v", err)
				}
				gaveUp.Add(1)
			}()
		}
		synctest.Wait()
		for n := range uint64(offsets) {
			if n == offsets/2 {
				stop(why)
			}
			publish(h, n, n+1)
			synctest.Wait()
			for offset := 1; offset <= offsets; offset++ {
				if want := uint64(offset) <= n+1; want != (went[offset] == 1) {
					t.Fatalf("at %d: %d of those went on that wait for %d", n+1, went[offset], offset)
				}
			}
		}
		if gaveUp.Load() != offsets || h.Awaited() != 0 {
			t.Errorf("%d gave up, %d still wait", gaveUp.Load(), h.Awaited())
		}
		if err := h.Await(t.Context(), offsets); err != nil {
			t.Error(err)
		}
		ended := errors.New("moved")
		go func() {
			if err := h.Await(t.Context(), offsets+1); !errors.Is(err, ended) {
				t.Errorf("the hub ended, and who waited got %v", err)
			}
		}()
		synctest.Wait()
		h.Close(ended)
		synctest.Wait()
		if err := h.Await(t.Context(), offsets+1); !errors.Is(err, ended) {
			t.Error(err)
		}
		if err := h.Await(t.Context(), offsets); err != nil {
			t.Errorf("what is committed stays so: %v", err)
		}
	})
}
