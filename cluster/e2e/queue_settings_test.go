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

// What a queue is set to is there after a kill, its messages too, and its name is nothing else's.
func TestAQueueStaysOneOverAKill(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "queue", "create", "emails", "--shards", "2", "--max-age", "7d")
	p.Must(nil, "stream", "create", "orders")
	publish(t, p.Connect().Publisher("emails"), "k", "v")
	if got := p.Command(nil, "stream", "create", "emails"); got.Code != refused || !strings.Contains(got.Stderr, "the name of a queue") {
		t.Errorf("a stream of the queue's name: %+v", got)
	}
	if got := p.Command(nil, "cache", "info", "emails"); !strings.Contains(got.Stderr, "margay queue") {
		t.Errorf("the queue as a cache: %+v", got)
	}
	if got := p.Command(nil, "queue", "create", "fast", "--storage", "memory"); got.Code != refused || !strings.Contains(got.Stderr, `needs storage "disk"`) {
		t.Errorf("a queue in memory: %+v", got)
	}
	before := p.Must(nil, "queue", "info", "emails", "-o", "json")
	p.Kill()
	p.Start()
	var was, is struct {
		control.Queue

		Offsets []struct{ Latest uint64 }
	}
	after := p.Must(nil, "queue", "info", "emails", "-o", "json")
	for text, into := range map[string]any{before: &was, after: &is} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if is.Queue != was.Queue || is.Keep != control.KeepUnsettled || is.MaxAge.String() != "7d" || len(is.Offsets) != 2 ||
		is.Offsets[0].Latest+is.Offsets[1].Latest != 1 {
		t.Errorf("before %s\nafter %s", before, after)
	}
	if names := p.Must(nil, "queue", "list", "-o", "raw"); names != "emails\n" {
		t.Errorf("queues: %q", names)
	}
	a, err := admin.FromContext(p.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if q, err := a.EnsureQueue(within(t), admin.QueueSpec{Name: "emails", Shards: new(2)}); err != nil || *q != is.Queue {
		t.Errorf("ensured: %+v, %v", q, err)
	}
	if _, err := a.EnsureQueue(within(t), admin.QueueSpec{Name: "orders"}); code.From(err).Code != code.AlreadyExists {
		t.Errorf("a queue of the stream's name: %v", err)
	}
}

// A stream that comes to keep the unsettled only holds what it held: no group has settled any of it.
func TestAStreamTurnsToTheUnsettled(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	p.Must(nil, "stream", "create", "jobs", "--max-age", "7d")
	publish(t, p.Connect().Publisher("jobs"), "k", "one")
	p.Must(nil, "stream", "update", "jobs", "--keep", "unsettled")
	publish(t, p.Connect().Publisher("jobs"), "k", "two")
	if got := values(readAll(t, p.Connect(), "jobs")); len(got) != 2 || got[0] != "one" || got[1] != "two" {
		t.Errorf("read %q", got)
	}
	if got := p.Command(nil, "stream", "update", "jobs", "--keep", "all"); got.Code != refused || !strings.Contains(got.Stderr, "create a new stream") {
		t.Errorf("and back: %+v", got)
	}
}
