// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// All messages are there before the first consumer is, and only confirmed acknowledgements count.
func TestWorkingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{fake: fake{answer: after(time.Millisecond)}, took: 10 * time.Millisecond}
		res, err := driveQueue(t, f, Spec{Workload: Work, Messages: 4000, Consumers: 4, MaxInFlight: 10}, Options{})
		if err != nil || res.Messages != 4000 || res.Latency != nil || res.Errors != 0 || res.Missing != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		// 40 at a time take 10 ms.
		if res.Seconds < 0.999 || res.Seconds > 1.001 {
			t.Errorf("%v s: want 1", res.Seconds)
		}
		for i, c := range f.consumers {
			if c.most != 10 || c.handed < 900 {
				t.Errorf("consumer %d: %d out at most, %d in all", i, c.most, c.handed)
			}
		}
		if f.keys[0] != "" {
			t.Errorf("key %q", f.keys[0])
		}
	})
}

func TestWorkDrawsFromKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{}
		if _, err := driveQueue(t, f, Spec{Workload: Work, Messages: 1000, Keys: 10, Ordered: true}, Options{}); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, k := range f.keys {
			count[k]++
		}
		if len(count) != 10 || len(f.keys) != 1000 {
			t.Errorf("%d keys of %d messages", len(count), len(f.keys))
		}
	})
}

// A run whose acknowledgements went astray, or were counted twice, is no result.
func TestWorkThatDoesNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := driveQueue(t, &fakeQueue{lost: 3}, Spec{Workload: Work, Messages: 100}, Options{Grace: time.Second})
		if err != nil || res.Missing != 3 || res.Messages != 97 {
			t.Errorf("lost: %+v, %v", res, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{again: true, took: time.Millisecond}
		if res, err := driveQueue(t, f, Spec{Workload: Work, Messages: 101, Consumers: 1, MaxInFlight: 200}, Options{}); err == nil && res.Messages == 101 {
			t.Errorf("twice: %+v", res)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{left: 2}
		if _, err := driveQueue(t, f, Spec{Workload: Work, Messages: 100}, Options{Grace: time.Second}); !errors.Is(err, errLeft) {
			t.Errorf("left: %v", err)
		}
	})
}

// One message is under way until it is settled, and what is timed ends at its handler.
func TestHandling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{fake: fake{answer: after(time.Millisecond)}, late: 3 * time.Millisecond, took: 7 * time.Millisecond}
		res, err := driveQueue(t, f, Spec{Workload: Handle, Duration: time.Second, Warmup: 100 * time.Millisecond}, Options{})
		if err != nil || res.Messages != 100 || res.Missing != 0 || res.Latency.Of != HandlerSent || !near(res.Latency.P50, 3*time.Millisecond) {
			t.Fatalf("%+v, %v", res, err)
		}
		if f.most[0] != 1 {
			t.Errorf("%d in flight", f.most[0])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeQueue{late: time.Millisecond}
		res, err := driveQueue(t, f, Spec{Workload: Handle, Duration: time.Second, Rate: 100, InFlight: 10}, Options{})
		if err != nil || res.Messages != 100 || res.Latency.Of != HandlerScheduled {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

func TestQueueSpecs(t *testing.T) {
	for want, s := range map[string]Spec{
		"--consumers 0":     {Workload: Work, Consumers: -1},
		"--max-in-flight":   {Workload: Pub, MaxInFlight: 5},
		"--connections 5":   {Workload: Work, Connections: 5},
		"--keys 5":          {Workload: Handle, Keys: 5},
		"--ordered":         {Workload: Work, Ordered: true},
		"--duration":        {Workload: Work, Duration: time.Second},
		"--subscribers":     {Workload: Work, Subscribers: 1},
		"--key-size 5":      {Workload: Work, Keys: 5, KeySize: 5},
		"--max-in-flight -": {Workload: Work, MaxInFlight: -3},
	} {
		s.Fill()
		if want == "--consumers 0" {
			s.Consumers = 0
		}
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v: want %q", s, err, want)
		}
	}
	for _, sys := range []System{&fake{}, Keyed(&fakeKV{})} {
		if _, err := Run(t.Context(), sys, Spec{Workload: Work}, Options{}); !errors.Is(err, errNeedsQueue) {
			t.Errorf("%T: %v", sys, err)
		}
	}
	if _, err := Run(t.Context(), Queued(&fakeQueue{}), Spec{Workload: Pub}, Options{}); !errors.Is(err, errNeedsStream) {
		t.Errorf("%v", err)
	}
}
