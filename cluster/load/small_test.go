// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func equal(a, b []int) bool { return slices.Equal(a, b) }

// Many who take and many who give: no permit is lost, none is made, nobody sleeps beside a free one.
func TestWindowUnderContention(t *testing.T) {
	const size, takers, each = 7, 8, 20_000
	w := newWindow(size)
	back := make(chan int, 100)
	var out, most atomic.Int64
	var all, givers sync.WaitGroup
	for range 3 {
		givers.Go(func() {
			for n := range back {
				out.Add(-int64(n))
				w.give(n)
			}
		})
	}
	for range takers {
		all.Go(func() {
			for got := 0; got < each; {
				n := w.take(t.Context(), min(3, each-got))
				if n == 0 {
					t.Error("the test's context ended: a taker slept beside a free permit")
					return
				}
				got += n
				if now := out.Add(int64(n)); now > most.Load() {
					most.Store(now)
				}
				back <- n
			}
		})
	}
	all.Wait()
	close(back)
	givers.Wait()
	if most.Load() > size || w.free.Load() != size {
		t.Errorf("%d out at once, %d free at the end: want at most, and just, %d", most.Load(), w.free.Load(), size)
	}
}

// The kernel's timer waits at least as long as it is told to, and lets go when its context ends.
func TestSleeper(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSleeper(ctx)
	defer s.close()
	for range 3 {
		begin := time.Now()
		s.sleep(2 * time.Millisecond)
		if d := time.Since(begin); d < 2*time.Millisecond {
			t.Errorf("slept %v: want 2 ms at least", d)
		}
	}
	time.AfterFunc(time.Millisecond, cancel)
	begin := time.Now()
	s.sleep(time.Hour)
	s.sleep(time.Hour)
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("slept %v beyond the end of its context", d)
	}
}

func TestSpec(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // in the error; "" for none
	}{
		{"--workload pub", ""},
		{"--workload latency --rate 5 --messages 3", ""},
		{"--workload sub --subscribers 3 --connections 2", ""},
		{"--workload fanout --subscribers 3", ""},
		{"--workload nothing", `--workload "nothing"`},
		{"--workload pub --clients -1", "--clients -1"},
		{"--workload pub --in-flight -1", "--in-flight -1"},
		{"--workload pub --size 7", "--size 7"},
		{"--workload pub --messages 3 --duration 1s", "give one of them"},
		{"--workload pub --messages -3", "--messages -3"},
		{"--workload pub --rate -1", "--rate -1"},
		{"--workload sub --rate 1", "--duration and --rate"},
		{"--workload sub --duration 1s", "--duration and --rate"},
		{"--workload fanout --subscribers 2 --connections 3", "--connections 3"},
		{"--workload fanout --watchers 2", "--watchers"},
		{"--workload put --keys 5 --rate 7", ""},
		{"--workload put --watchers 5 --connections 2", ""},
		{"--workload put --watch key", "--watch key"},
		{"--workload put --pace 1s", "--pace 1s"},
		{"--workload get --keys -1", "--keys -1"},
		{"--workload get --watchers 2", "--watchers 2"},
		{"--workload get --random", "--random"},
		{"--workload get --key-size 3", "--key-size 3"},
		{"--workload watch --watchers 500 --connections 10 --watch prefix", ""},
		{"--workload watch --watch pattern", `--watch "pattern"`},
		{"--workload watch --keys 3", "--keys 3"},
		{"--workload watch --size 10", "--size 10"},
		{"--workload watch --watchers 2 --connections 3", "--connections 3"},
		{"--workload watch --subscribers 2", "--subscribers 2"},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		spec := Flags(fs, "")
		if err := fs.Parse(strings.Fields(c.args)); err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		spec.Fill()
		switch err := spec.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v: want %q in it", c.args, err, c.want)
		}
	}
}

// Who reads results by program relies on these names.
func TestResultJSON(t *testing.T) {
	r := Result{
		System: "margay 0.3.0, fsync always",
		Spec: Spec{
			Workload: Fanout, Clients: 2, InFlight: 100, Size: 128, Messages: 1000, Duration: time.Second, Rate: 5, Warmup: time.Second,
			Subscribers: 10, Connections: 5, Watchers: 6, Watch: WatchPrefix, Pace: time.Second, Keys: 7, KeySize: 32, Random: true,
			Consumers: 8, MaxInFlight: 9, Ordered: true, Shards: 4, Prepared: true,
		},
		Messages: 10_000, Bytes: 1_280_000, Seconds: 2, Rate: 5000,
		Latency:   &Quantiles{Of: DeliveryScheduled, P50: 1, P90: 2, P99: 3, P999: 4, Max: 5},
		ClientCPU: 0.5, ClientCPUPerMessage: 50,
		Server: &Server{PID: 7, CPU: 1, CPUPerMessage: 100, RSS: 4096},
		Errors: 1, FirstError: "refused", Missing: 2, Unsent: 3, Interrupted: true,
	}
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/result.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
