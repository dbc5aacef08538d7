// SPDX-License-Identifier: Apache-2.0

package margay_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/cluster/load/margay"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func streams(t *testing.T, n *margaytest.Node) []control.Stream {
	t.Helper()
	k := n.Context()
	api, err := control.NewClient(k.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	l, err := api.Streams(t.Context(), k.Tenant, k.Namespace, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func TestWorkloads(t *testing.T) {
	n := margaytest.Start(t)
	for name, spec := range map[string]load.Spec{
		"pub":                    {Workload: load.Pub, Messages: 3000},
		"one at a time":          {Workload: load.Pub, InFlight: 1, Messages: 30},
		"more shards than that":  {Workload: load.Pub, Clients: 2, Shards: 5, Messages: 3000},
		"fewer shards than that": {Workload: load.Pub, Clients: 4, Shards: 2, Messages: 3000},
		"latency":                {Workload: load.Latency, Rate: 2000, Messages: 1000},
		"sub":                    {Workload: load.Sub, Shards: 3, Messages: 3000, Subscribers: 2, Connections: 1},
		"fanout":                 {Workload: load.Fanout, Messages: 1000, Subscribers: 5, Connections: 2, Warmup: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Fill()
			s, err := margay.Open(t.Context(), margay.Config{
				Context: n.Context(), Publishers: spec.Clients, Shards: spec.Shards, Fsync: control.FsyncNever, OneAtATime: spec.InFlight == 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			made := streams(t, n)
			res, err := load.Run(t.Context(), s, spec, load.Options{ServerPID: os.Getpid()})
			if err != nil {
				t.Fatal(err)
			}
			want := spec.Messages * int64(max(1, spec.Subscribers))
			if res.Messages != want || res.Errors != 0 || res.Missing != 0 || res.Server == nil {
				t.Errorf("%+v: want %d messages", res, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if len(made) != 1 || made[0].Shards != spec.Shards || len(streams(t, n)) != 0 {
				t.Errorf("streams during the run: %+v; after it: %+v", made, streams(t, n))
			}
		})
	}
}

func logs(t *testing.T, n *margaytest.Node, preset string) []control.LogDocument {
	t.Helper()
	k := n.Context()
	api, err := control.NewClient(k.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	l, err := api.Logs(preset).List(t.Context(), k.Tenant, k.Namespace, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func TestWorkloadsWithKeys(t *testing.T) {
	n := margaytest.Start(t)
	for name, spec := range map[string]load.Spec{
		"put":                {Workload: load.Put, Messages: 3000, Shards: 3},
		"put, one at a time": {Workload: load.Put, InFlight: 1, Messages: 30},
		"put, two clients":   {Workload: load.Put, Clients: 2, Random: true, Rate: 5000, Messages: 1000},
		"slow watchers":      {Workload: load.Put, Watchers: 10, Connections: 2, Pace: 100 * time.Millisecond, Messages: 2000},
		"get":                {Workload: load.Get, Keys: 500, Shards: 3, Messages: 3000},
		"get, one at a time": {Workload: load.Get, Keys: 50, Clients: 3, InFlight: 1, Messages: 300},
		"watch a key":        {Workload: load.Watch, Watchers: 20, Connections: 4, Messages: 1000, Warmup: 50 * time.Millisecond},
		"watch a prefix":     {Workload: load.Watch, Watch: load.WatchPrefix, Watchers: 20, Connections: 2, Shards: 3, Messages: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Fill()
			s, err := margay.OpenCache(t.Context(), margay.Config{
				Context: n.Context(), Publishers: spec.Clients, Shards: spec.Shards, Fsync: control.FsyncNever, OneAtATime: spec.InFlight == 1,
				TTL: time.Hour,
			}, &spec)
			if err != nil {
				t.Fatal(err)
			}
			made := logs(t, n, control.PresetCache)
			res, err := load.Run(t.Context(), load.Keyed(s), spec, load.Options{ServerPID: os.Getpid()})
			if err != nil {
				t.Fatal(err)
			}
			want := spec.Messages
			if spec.Workload == load.Watch {
				want *= int64(spec.Watchers)
			}
			if res.Messages != want || res.Errors != 0 || res.Missing != 0 || res.Server == nil {
				t.Errorf("%+v: want %d messages", res, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if left := logs(t, n, control.PresetCache); len(made) != 1 || made[0].Shards != spec.Shards || len(left) != 0 {
				t.Errorf("caches during the run: %+v; after it: %+v", made, left)
			}
		})
	}
}

func TestWorkloadsOfQueues(t *testing.T) {
	n := margaytest.Start(t)
	for name, spec := range map[string]load.Spec{
		"work":             {Workload: load.Work, Messages: 3000},
		"work, shards":     {Workload: load.Work, Messages: 3000, Shards: 3, Consumers: 10, Connections: 2, MaxInFlight: 20},
		"work, order":      {Workload: load.Work, Messages: 3000, Shards: 2, Keys: 100, Ordered: true},
		"work, many":       {Workload: load.Work, Messages: 3000, Clients: 3, Consumers: 1, MaxInFlight: 5000},
		"handle":           {Workload: load.Handle, Messages: 50},
		"handle at a rate": {Workload: load.Handle, Messages: 500, Rate: 2000, InFlight: 50, Consumers: 3, Warmup: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Fill()
			s, err := margay.OpenQueue(t.Context(), margay.Config{
				Context: n.Context(), Publishers: spec.Clients, Shards: spec.Shards, Fsync: control.FsyncNever, OneAtATime: spec.InFlight == 1,
			}, &spec)
			if err != nil {
				t.Fatal(err)
			}
			made := logs(t, n, control.PresetQueue)
			res, err := load.Run(t.Context(), load.Queued(s), spec, load.Options{ServerPID: os.Getpid()})
			if err != nil {
				t.Fatal(err)
			}
			if res.Messages != spec.Messages || res.Errors != 0 || res.Missing != 0 || res.Server == nil {
				t.Errorf("%+v: want %d messages", res, spec.Messages)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if left := logs(t, n, control.PresetQueue); len(made) != 1 || made[0].Shards != spec.Shards || len(left) != 0 {
				t.Errorf("queues during the run: %+v; after it: %+v", made, left)
			}
		})
	}
}

// A stream that was there is used as it is, and stays.
func TestStreamOfTheUsers(t *testing.T) {
	n := margaytest.Start(t)
	k := n.Context()
	if _, err := margay.Open(t.Context(), margay.Config{Context: k, Stream: "mine"}); client.AsError(err) == nil || client.AsError(err).Code != client.ErrNotFound {
		t.Fatalf("a stream that is not there: %v", err)
	}
	api, err := control.NewClient(k.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	shards := 4
	if _, err := api.CreateStream(t.Context(), k.Tenant, k.Namespace, control.StreamSpec{Name: "mine", Shards: &shards}); err != nil {
		t.Fatal(err)
	}
	for i, spec := range []load.Spec{
		{Workload: load.Pub, Messages: 500},
		{Workload: load.Sub, Messages: 500, Prepared: true},
	} {
		s, err := margay.Open(t.Context(), margay.Config{Context: k, Stream: "mine", Ack: control.AckLeader})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := load.Run(t.Context(), s, spec, load.Options{}); err != nil || res.Messages != 500 || res.Server != nil || s.Shards() != 4 {
			t.Errorf("run %d: %v, %+v", i, err, res)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := streams(t, n); len(left) != 1 {
		t.Errorf("%+v: want the user's stream", left)
	}
}

// A publisher that is closed with messages under way has told of all of them when Close returns.
func TestCloseTellsOfAll(t *testing.T) {
	n := margaytest.Start(t)
	s, err := margay.Open(t.Context(), margay.Config{Context: n.Context()})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan int, 10_000)
	p, err := s.Publisher(t.Context(), 0, func(_ int64, n int, _ error) { told <- n })
	if err != nil {
		t.Fatal(err)
	}
	const messages = 5000
	for i := range messages {
		if err := p.Publish(t.Context(), make([]byte, 100), int64(i/10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	close(told)
	sum := 0
	for n := range told {
		sum += n
	}
	if sum != messages {
		t.Errorf("told of %d of %d", sum, messages)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestBadAck(t *testing.T) {
	_, err := margay.Open(context.Background(), margay.Config{Ack: "maybe"})
	if err == nil || !strings.Contains(err.Error(), `ack "maybe"`) {
		t.Error(err)
	}
}
