// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func after(d time.Duration) func(int64) (time.Duration, error) {
	return func(int64) (time.Duration, error) { return d, nil }
}

// near says whether got is want but for what a histogram's digits lose.
func near(got float64, want time.Duration) bool {
	us := float64(want) / 1e3
	return math.Abs(got-us) <= us/500+1
}

func TestWindowIsNeverExceededAndAlwaysUsed(t *testing.T) {
	for _, inFlight := range []int{1, 3, 64, 500} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answer: func(n int64) (time.Duration, error) { return time.Duration(1+n%7) * time.Millisecond, nil }}
			res, err := drive(t.Context(), t, f, Spec{Workload: Pub, Clients: 3, InFlight: inFlight, Messages: 10_000}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Messages != 10_000 || res.Errors != 0 || res.Missing != 0 || res.Bytes != 10_000*128 || f.handed != 10_000 {
				t.Errorf("%+v, %d handed over", res, f.handed)
			}
			for i, most := range f.most {
				if most != int64(inFlight) {
					t.Errorf("client %d had at most %d under way: want exactly %d", i, most, inFlight)
				}
			}
		})
	}
}

func TestClosedLoopLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(n int64) (time.Duration, error) {
			if n%100 == 0 {
				return 80 * time.Millisecond, nil
			}
			return 2 * time.Millisecond, nil
		}}
		res, err := drive(t.Context(), t, f, Spec{Workload: Pub, InFlight: 1, Messages: 10_000}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := res.Latency
		if l.Of != AckSent || !near(l.P50, 2*time.Millisecond) || !near(l.P999, 80*time.Millisecond) || !near(l.Max, 80*time.Millisecond) {
			t.Errorf("%+v", l)
		}
		if want := 9900*0.002 + 100*0.08; math.Abs(res.Seconds-want) > 0.01 {
			t.Errorf("%v s: want %v", res.Seconds, want)
		}
	})
}

// A system answers in 1 ms but for one second in ten in which it answers nothing. With a window of one message, a generator
// that waits for it would see a single slow answer in thousands.
func TestStallShowsAtAFixedRate(t *testing.T) {
	stalled := func(begin time.Time) func(int64) (time.Duration, error) {
		return func(int64) (time.Duration, error) {
			at := time.Since(begin)
			if at >= 4*time.Second && at < 5*time.Second {
				return 5*time.Second - at + time.Millisecond, nil
			}
			return time.Millisecond, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: stalled(time.Now())}
		res, err := drive(t.Context(), t, f, Spec{Workload: Latency, Rate: 100, InFlight: 1, Duration: 10 * time.Second}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := res.Latency
		if l.Of != AckScheduled || !near(l.P50, time.Millisecond) {
			t.Errorf("%+v", l)
		}
		// The second's 100 messages are a tenth of all and have waited for 1 s, 0.99 s, …
		if l.P99 < 0.85e6 || l.P99 > 1.1e6 || l.Max < 0.99e6 || l.Max > 1.1e6 {
			t.Errorf("p99 %v, max %v µs: the stall of 1 s is not there", l.P99, l.Max)
		}
		if res.Messages != 1000 || res.Unsent != 0 {
			t.Errorf("%d messages, %d unsent: want 1000, none", res.Messages, res.Unsent)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the contrast
		f := &fake{answer: stalled(time.Now())}
		res, err := drive(t.Context(), t, f, Spec{Workload: Pub, InFlight: 1, Duration: 10 * time.Second}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !near(res.Latency.P999, time.Millisecond) {
			t.Errorf("p99.9 %v µs in a closed loop", res.Latency.P999)
		}
	})
}

// What a system never let be sent has waited all the same.
func TestUnsentMessagesCountAsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: after(100 * time.Millisecond)} // 10 a second with one in flight
		spec := Spec{Workload: Latency, Rate: 1000, InFlight: 1, Duration: 10 * time.Second}
		res, err := drive(t.Context(), t, f, spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if sum := res.Messages + res.Unsent; res.Messages < 105 || res.Messages > 115 || sum != 10_000 {
			t.Errorf("%d messages and %d unsent: want about 110 of 10,000", res.Messages, res.Unsent)
		}
		if res.Latency.P50 < 5.5e6 || res.Latency.P99 < 10.5e6 {
			t.Errorf("%+v: want about 6 s and 11 s", res.Latency)
		}
	})
}

func TestRateIsHeldByAllClientsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: after(time.Millisecond)}
		spec := Spec{Workload: Latency, Clients: 7, Rate: 1000, Duration: 3 * time.Second, Warmup: time.Second}
		res, err := drive(t.Context(), t, f, spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 3000 || math.Abs(res.Rate-1000) > 5 || f.handed < 3990 {
			t.Errorf("%d messages at %v/s; %d with the warm-up", res.Messages, res.Rate, f.handed)
		}
		if !near(res.Latency.Max, time.Millisecond) {
			t.Errorf("%+v", res.Latency)
		}
	})
}

func TestErrorsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(n int64) (time.Duration, error) {
			if n%10 == 0 {
				return time.Millisecond, errFake
			}
			return time.Millisecond, nil
		}}
		res, err := drive(t.Context(), t, f, Spec{Workload: Pub, InFlight: 20, Messages: 5000}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 4500 || res.Errors != 500 || res.Missing != 0 || res.FirstError != errFake.Error() {
			t.Errorf("%+v", res)
		}
	})
}

func TestRunThatOnlyFailsEnds(t *testing.T) {
	for name, f := range map[string]*fake{
		"refused":  {refuse: errFake},
		"answered": {answer: func(int64) (time.Duration, error) { return time.Millisecond, errFake }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := drive(t.Context(), t, f, Spec{Workload: Pub, Duration: time.Hour}, Options{})
				if !errors.Is(err, errFake) || !errors.Is(err, errTooMany) {
					t.Errorf("%v: want too many errors, and the first", err)
				}
			})
		})
	}
}

func TestNothingIsWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{never: 901, answer: after(time.Millisecond)}
		begin := time.Now()
		res, err := drive(t.Context(), t, f, Spec{Workload: Pub, InFlight: 50, Messages: 2000}, Options{Grace: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 900 || res.Missing != 50 || !strings.Contains(res.FirstError, errStalled.Error()) {
			t.Errorf("%+v: want 900 messages and 50 missing", res)
		}
		if d := time.Since(begin); d > 6*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestInterruptedRunReturnsWhatItHas(t *testing.T) {
	for _, workload := range []Workload{Pub, Latency, Fanout} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			f := &fake{answer: after(10 * time.Millisecond)}
			res, err := drive(ctx, t, f, Spec{Workload: workload, InFlight: 1, Rate: 50, Duration: time.Hour, Subscribers: 1}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !res.Interrupted || res.Messages < 99 || res.Messages > 101 || res.Missing != 0 || res.Unsent > 1 {
				t.Errorf("%s: %+v", workload, res)
			}
		})
	}
}

func TestAdapterThatTellsTwiceIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{twice: true, answer: after(time.Millisecond)}
		if _, err := drive(t.Context(), t, f, Spec{Workload: Pub, InFlight: 10, Messages: 100}, Options{}); !errors.Is(err, errTwice) {
			t.Errorf("%v: want it said", err)
		}
	})
}

func TestFanout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: after(3 * time.Millisecond)}
		spec := Spec{Workload: Fanout, Clients: 2, InFlight: 10, Messages: 1000, Subscribers: 7, Connections: 3, Warmup: time.Second}
		res, err := drive(t.Context(), t, f, spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 7000 || res.Missing != 0 || res.Latency.Of != DeliverySent || !near(res.Latency.P50, 3*time.Millisecond) {
			t.Errorf("%+v, %+v", res, res.Latency)
		}
		var connections []int
		for _, s := range f.subscribers {
			connections = append(connections, s.s.Connection)
		}
		if want := []int{0, 1, 2, 0, 1, 2, 0}; !equal(connections, want) {
			t.Errorf("connections %v: want %v", connections, want)
		}
	})
}

func TestFanoutTellsOfWhatIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: after(time.Millisecond), drop: 500}
		spec := Spec{Workload: Fanout, InFlight: 10, Messages: 1000, Subscribers: 3}
		res, err := drive(t.Context(), t, f, spec, Options{Grace: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 2997 || res.Missing != 3 {
			t.Errorf("%+v: want three deliveries missing", res)
		}
	})
}

func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: after(time.Millisecond)}
		spec := Spec{Workload: Sub, Messages: 3000, Size: 100, Subscribers: 2}
		res, err := drive(t.Context(), t, f, spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res.Messages != 6000 || res.Bytes != 600_000 || res.Missing != 0 || res.Latency != nil {
			t.Errorf("%+v", res)
		}
		spec.Prepared, spec.Messages = true, 2000 // fewer than there are
		if res, err = drive(t.Context(), t, f, spec, Options{}); err != nil || res.Messages != 4000 || f.handed != 3000 {
			t.Errorf("%+v, %v, %d handed over", res, err, f.handed)
		}
		spec.Messages = 5000 // more
		if res, err = drive(t.Context(), t, f, spec, Options{}); err != nil || res.Messages != 6000 || res.Missing != 4000 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// Who ends a replay misses nothing.
func TestInterruptedReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{answer: after(time.Millisecond)}
		if _, err := drive(t.Context(), t, f, Spec{Workload: Sub, Messages: 100}, Options{}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, cancel)
		res, err := drive(ctx, t, f, Spec{Workload: Sub, Messages: 1000, Prepared: true}, Options{})
		if err != nil || !res.Interrupted || res.Messages != 100 || res.Missing != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestSubscriptionThatEndsEndsTheRun(t *testing.T) {
	for _, workload := range []Workload{Sub, Fanout} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answer: after(time.Millisecond)}
			time.AfterFunc(3*time.Second, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.subscribers[0].s.Fail(errFake)
			})
			_, err := drive(t.Context(), t, f, Spec{Workload: workload, Messages: 1e6, InFlight: 1, Prepared: workload == Sub}, Options{})
			if !errors.Is(err, errFake) {
				t.Errorf("%s: %v: want the subscription's", workload, err)
			}
		})
	}
}

func TestProgressIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []Progress
		f := &fake{answer: after(10 * time.Millisecond)}
		spec := Spec{Workload: Pub, InFlight: 1, Duration: 2 * time.Second, Warmup: time.Second}
		if _, err := drive(t.Context(), t, f, spec, Options{Progress: func(p Progress) { seen = append(seen, p) }}); err != nil {
			t.Fatal(err)
		}
		if len(seen) < 8 || seen[0].Phase != "warming up" || seen[len(seen)-1].Phase != "measuring" || seen[len(seen)-1].Messages < 100 {
			t.Errorf("%+v", seen)
		}
	})
}
