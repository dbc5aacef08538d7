// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPutsGoRoundTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fake: fake{answer: after(time.Millisecond)}}
		res, err := driveKV(t, f, Spec{Workload: Put, Clients: 3, InFlight: 10, Keys: 7, Messages: 700}, Options{})
		if err != nil || res.Messages != 700 || res.Latency.Of != AckSent || !near(res.Latency.P50, time.Millisecond) {
			t.Fatalf("%+v, %v", res, err)
		}
		count := map[string]int{}
		for _, k := range f.keys {
			count[k]++
		}
		for k, n := range count {
			if n != 100 {
				t.Errorf("%s was put %d times", k, n)
			}
		}
		if len(count) != 7 || f.most[1] != 10 {
			t.Errorf("%d keys, %d in flight", len(count), f.most[1])
		}
	})
}

func TestRandomPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{}
		if _, err := driveKV(t, f, Spec{Workload: Put, Keys: 10, KeySize: 32, Random: true, Messages: 1000}, Options{}); err != nil {
			t.Fatal(err)
		}
		for key := range f.values {
			if len(key) != 32 {
				t.Errorf("key %q", key)
			}
		}
		if len(f.values) != 10 || f.keys[0] == Key(0, 32) && f.keys[1] == Key(1, 32) && f.keys[2] == Key(2, 32) {
			t.Errorf("%d keys, %q first", len(f.values), f.keys[:3])
		}
	})
}

// All keys are there before the first is read, and what is not is no answer.
func TestGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fake: fake{answer: after(time.Millisecond)}}
		res, err := driveKV(t, f, Spec{Workload: Get, Clients: 2, InFlight: 4, Keys: 100, Duration: time.Second, Rate: 1000}, Options{})
		if err != nil || res.Messages != 1000 || res.Errors != 0 || res.Latency.Of != AnswerScheduled {
			t.Fatalf("%+v, %v", res, err)
		}
		if len(f.values) != 100 || len(f.gets) != 1000 || f.keys[0] == f.keys[1] {
			t.Errorf("%d keys put, %d gets", len(f.values), len(f.gets))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{lose: map[string]bool{Key(3, 16): true}}
		res, err := driveKV(t, f, Spec{Workload: Get, Keys: 10, Messages: 1000}, Options{})
		if err != nil || res.Errors == 0 || res.Messages+res.Errors != 1000 || !strings.Contains(res.FirstError, Key(3, 16)) {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A put is under way until the last watcher has it, and that is what is timed.
func TestWatchTimesTheLast(t *testing.T) {
	for _, what := range []Watched{WatchKey, WatchPrefix} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeKV{told: func(i int, _ int64) (int, time.Duration) { return 1, time.Duration(i+1) * time.Millisecond }}
			spec := Spec{Workload: Watch, Watch: what, Watchers: 10, Connections: 2, InFlight: 5, Messages: 1000, Warmup: time.Second}
			res, err := driveKV(t, f, spec, Options{})
			if err != nil || res.Messages != 10_000 || res.Missing != 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			l := res.Latency
			if l.Of != AllSent || !near(l.P50, 10*time.Millisecond) || !near(l.Max, 10*time.Millisecond) {
				t.Errorf("%+v", l)
			}
			if want := 1000.0 / 5 * 0.01; math.Abs(res.Seconds-want) > 0.01 {
				t.Errorf("%v s: want %v, with five under way", res.Seconds, want)
			}
		})
	}
}

// A watcher may have a value before its publisher is told that it is stored: what is told late is not told twice.
func TestAnswersBehindTheWatchersAreNotTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{told: func(int, int64) (int, time.Duration) { return 1, time.Millisecond }}
		f.answer = func(int64) (time.Duration, error) { return 5 * time.Millisecond, nil }
		res, err := driveKV(t, f, Spec{Workload: Watch, Watchers: 1, InFlight: 64, Messages: 640, Warmup: time.Second}, Options{})
		if err != nil || res.Messages != 640 || res.Missing != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// One watcher in ten that stalls for a second has all puts of that second wait, sent or not.
func TestStalledWatcherShowsAtAFixedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &fakeKV{told: func(i int, _ int64) (int, time.Duration) {
			if at := time.Since(begin); i == 3 && at >= 4*time.Second && at < 5*time.Second {
				return 1, 5*time.Second - at
			}
			return 1, time.Millisecond
		}}
		spec := Spec{Workload: Watch, Watchers: 10, InFlight: 1, Rate: 100, Duration: 10 * time.Second}
		res, err := driveKV(t, f, spec, Options{})
		if err != nil || res.Messages != 10_000 || res.Latency.Of != AllScheduled {
			t.Fatalf("%+v, %v", res, err)
		}
		if l := res.Latency; !near(l.P50, time.Millisecond) || l.P99 < 0.85e6 || l.Max > 1.1e6 {
			t.Errorf("%+v: the stall of 1 s is not there", l)
		}
	})
}

// A watch that leaves out a change is no watch of every revision, whatever it makes up for it.
func TestWatchesAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		told func(int, int64) (int, time.Duration)
		want string
	}{
		"a change is left out":         {func(i int, n int64) (int, time.Duration) { return one(i != 2 || n != 50), 0 }, ""},
		"another has it twice instead": {func(i int, n int64) (int, time.Duration) { return one(i != 2 || n != 50) + one(i == 1 && n == 50), 0 }, "was told of"},
		"one has it twice":             {func(i int, n int64) (int, time.Duration) { return 1 + one(i == 1 && n == 50), 0 }, "was told of"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeKV{told: c.told}
				res, err := driveKV(t, f, Spec{Workload: Watch, Watchers: 3, InFlight: 4, Messages: 100}, Options{Grace: time.Minute})
				switch {
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%+v, %v: want %q", res, err, c.want)
				case c.want == "" && (err != nil || res.Missing == 0):
					t.Errorf("%+v, %v: want changes that are missing", res, err)
				}
			})
		})
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Watchers that are slow are told of what is put, and end with the run.
func TestSlowWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fake: fake{answer: after(time.Millisecond)}}
		spec := Spec{Workload: Put, Watchers: 5, Connections: 1, Pace: time.Minute, Messages: 100}
		res, err := driveKV(t, f, spec, Options{})
		if err != nil || res.Messages != 100 || res.Seconds > 1 || len(f.watchers) != 5 || !f.watchers[0].Prefix {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestAdapterMustFit(t *testing.T) {
	if _, err := Run(t.Context(), &fake{}, Spec{Workload: Put, Messages: 1}, Options{}); err == nil || !strings.Contains(err.Error(), "no keys") {
		t.Errorf("put without keys: %v", err)
	}
	if _, err := Run(t.Context(), Keyed(&fakeKV{}), Spec{Workload: Pub, Messages: 1}, Options{}); err == nil || !strings.Contains(err.Error(), "keys only") {
		t.Errorf("pub with keys: %v", err)
	}
}
