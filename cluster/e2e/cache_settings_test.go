// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"margay.dev/client/admin"
	"margay.dev/cluster/process"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// What a cache is set to is there after a kill, its records too, and its name is nothing else's.
func TestACacheStaysOneOverAKill(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "cache", "create", "sessions", "--shards", "2", "--ttl", "30m", "--max-keys", "5000")
	p.Must(nil, "stream", "create", "orders", "--max-age", "7d")
	publish(t, p.Connect().Publisher("sessions"), "k", "v")
	if got := p.Command(nil, "stream", "create", "sessions"); got.Code != refused || !strings.Contains(got.Stderr, "the name of a cache") {
		t.Errorf("a stream of the cache's name: %+v", got)
	}
	if got := p.Command(nil, "stream", "info", "sessions"); !strings.Contains(got.Stderr, "margay cache") {
		t.Errorf("the cache as a stream: %+v", got)
	}
	before := p.Must(nil, "cache", "info", "sessions", "-o", "json")
	p.Kill()
	p.Start()
	var was, is struct {
		control.Cache

		Offsets []struct{ Latest uint64 }
	}
	after := p.Must(nil, "cache", "info", "sessions", "-o", "json")
	for text, into := range map[string]any{before: &was, after: &is} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if is.Cache != was.Cache || is.Keep != control.KeepNewest || is.MaxKeys != 5000 || is.TTL.String() != "30m" || len(is.Offsets) != 2 {
		t.Errorf("before %s\nafter %s", before, after)
	}
	if names := p.Must(nil, "cache", "list", "-o", "raw"); names != "sessions\n" {
		t.Errorf("caches: %q", names)
	}
	if names := p.Must(nil, "stream", "list", "-o", "raw"); names != "orders\n" {
		t.Errorf("streams: %q", names)
	}
	a, err := admin.FromContext(p.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if c, err := a.EnsureCache(within(t), admin.CacheSpec{Name: "sessions", MaxKeys: new(int64(5000))}); err != nil || *c != is.Cache {
		t.Errorf("ensured: %+v, %v", c, err)
	}
	if _, err := a.EnsureCache(within(t), admin.CacheSpec{Name: "orders"}); code.From(err).Code != code.AlreadyExists {
		t.Errorf("a cache of the stream's name: %v", err)
	}
}

// A stream that comes to keep the newest only holds what it held, and serves it.
func TestAStreamTurnsToTheNewest(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "stream", "create", "state", "--max-age", "7d")
	publish(t, p.Connect().Publisher("state"), "k", "one")
	if got := p.Command(nil, "stream", "update", "state", "--keep", "newest"); got.Code != refused || !strings.Contains(got.Stderr, "max_age") {
		t.Errorf("beside an age: %+v", got)
	}
	p.Must(nil, "stream", "update", "state", "--keep", "newest", "--max-age", "0s")
	publish(t, p.Connect().Publisher("state"), "k", "two")
	if got := values(readAll(t, p.Connect(), "state")); got[len(got)-1] != "two" {
		t.Errorf("read %q", got)
	}
	if got := p.Command(nil, "stream", "update", "state", "--keep", "all"); got.Code != refused || !strings.Contains(got.Stderr, "create a new stream") {
		t.Errorf("and back: %+v", got)
	}
}
