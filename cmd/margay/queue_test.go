// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// message is what commands print of a message.
type message struct {
	ID, State, Value, Reason, Error, Outcome string
	Attempt, Attempts, Status                int
}

// A queue by hand, from the first message to the last dead letter.
func TestQueueByHand(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("queue", "create", "emails")
	if got := h.ok("push", "emails", "one", "--key", "a", "-o", "raw"); got != "0/0\n" {
		t.Errorf("pushed %q", got)
	}
	if got := h.ok("push", "emails", "two", "--priority", "3"); !strings.HasPrefix(got, "emails message 0/1 (") {
		t.Errorf("pushed %q", got)
	}
	if got := h.ok("push", "emails", "later", "--delay", "1h"); !strings.HasPrefix(got, "emails message 0/2, due in 1h (") {
		t.Errorf("pushed %q", got)
	}
	take := func(args ...string) string {
		return h.ok(append([]string{"consume", "emails", "--group", "mailers", "-o", "raw", "--count"}, args...)...)
	}
	if got := take("2"); got != "two\none\n" {
		t.Errorf("taken and given back: %q", got)
	}
	if got := take("1", "--ack"); got != "two\n" {
		t.Errorf("taken: %q", got)
	}
	if got := take("1", "--nack"); got != "one\n" {
		t.Errorf("given back: %q", got)
	}
	all := objects[message](t, h.ok("consume", "emails", "--group", "mailers", "--ack", "--count", "1", "-o", "json"))
	if len(all) != 1 || all[0].ID != "0/0" || all[0].Attempt != 2 || all[0].Value != "one" {
		t.Errorf("again: %+v", all)
	}
	if got := take("10", "--wait", "100ms"); got != "" {
		t.Errorf("nothing is due: %q", got)
	}
	all = objects[message](t, h.ok("queue", "peek", "emails", "--group", "mailers", "-o", "json"))
	if len(all) != 1 || all[0].ID != "0/2" || all[0].State != "delayed" || all[0].Value != "later" {
		t.Errorf("peeked: %+v", all)
	}
	if got := h.ok("queue", "reschedule", "emails", "2", "--in", "0s"); got != "1 message of emails is due now\n" {
		t.Errorf("rescheduled: %q", got)
	}
	if got := take("1", "--reject", "no such address"); got != "later\n" {
		t.Errorf("rejected: %q", got)
	}
	all = objects[message](t, h.ok("deadletter", "list", "emails", "mailers", "-o", "json"))
	if len(all) != 1 || all[0].ID != "0/2" || all[0].Reason != "rejected" || all[0].Error != "no such address" {
		t.Errorf("dead letters: %+v", all)
	}
	if got := h.ok("deadletter", "redrive", "emails", "mailers", "--all"); got != "1 dead letter of mailers of emails is handed out again\n" {
		t.Errorf("redriven: %q", got)
	}
	take("1", "--reject", "as before")
	if got := h.ok("deadletter", "discard", "emails", "mailers", "0/2", "-o", "raw"); got != "1\n" {
		t.Errorf("discarded: %q", got)
	}
	h.ok("push", "emails", "never mind", "--key", "b", "--header", "kind=draft")
	if got := h.ok("queue", "find", "emails", "--header", "kind=draft", "-o", "raw"); got != "never mind\n" {
		t.Errorf("found: %q", got)
	}
	if got := h.ok("queue", "cancel", "emails", "0/3"); got != "1 message of emails is cancelled\n" {
		t.Errorf("cancelled: %q", got)
	}
	for _, tc := range []struct {
		code int
		says string
		args []string
	}{
		{5, "margay queue peek emails", []string{"queue", "cancel", "emails", "0/3"}},
		{5, "margay queue create nosuch", []string{"push", "nosuch", "x"}},
		{5, "margay queue create nosuch", []string{"consume", "nosuch", "--group", "g", "--ack"}},
		{5, "margay queue create nosuch", []string{"group", "info", "nosuch", "g"}},
		{5, "margay group create emails none", []string{"group", "info", "emails", "none"}},
		{5, "margay group create emails none", []string{"deadletter", "list", "emails", "none"}},
		{5, "margay queue peek", []string{"deadletter", "redrive", "emails", "mailers", "0/3"}},
		{2, "nothing was tried", []string{"queue", "cancel", "emails", "x"}},
	} {
		if got := h.run("", tc.args...); got.code != tc.code || !strings.Contains(got.err, tc.says) {
			t.Errorf("%v: %+v, want exit %d and %q", tc.args, got, tc.code, tc.says)
		}
	}
}

func TestGroups(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("queue", "create", "emails", "--shards", "2")
	for _, key := range []string{"a", "b", "c", "d"} {
		h.ok("push", "emails", "v", "--key", key)
	}
	const there = "group mailers of emails is there: ack wait 2m, 5 attempts, backoff 100ms,1s,5s,30s,1m\n"
	for range 2 {
		if got := h.ok("group", "create", "emails", "mailers", "--ack-wait", "2m", "--max-attempts", "5"); got != there {
			t.Errorf("created: %q", got)
		}
	}
	if got := h.run("", "group", "create", "emails", "mailers", "--order", "key"); got.code != 4 || !strings.Contains(got.err, "order is none, asked for key") {
		t.Errorf("of other settings: %+v", got)
	}
	type group struct {
		Name                 string
		Ready, Delayed, Dead int
		Paused               bool
		Settings             struct{ Backoff []string }
		Totals               struct{ Acked int }
		Shards               []struct{ Shard, Next, Latest int }
	}
	info := func() group {
		t.Helper()
		all := objects[group](t, h.ok("group", "info", "emails", "mailers", "--exact", "-o", "json"))
		if len(all) != 1 {
			t.Fatalf("info: %+v", all)
		}
		return all[0]
	}
	if g := info(); g.Ready != 4 || len(g.Shards) != 2 || g.Shards[0].Latest+g.Shards[1].Latest != 4 {
		t.Errorf("new: %+v", g)
	}
	h.ok("group", "update", "emails", "mailers", "--backoff", "10s,1m")
	h.ok("group", "pause", "emails", "mailers")
	if g := info(); !g.Paused || len(g.Settings.Backoff) != 2 || g.Settings.Backoff[1] != "1m" {
		t.Errorf("paused and updated: %+v", g)
	}
	if got := h.ok("consume", "emails", "--group", "mailers", "--ack", "--wait", "100ms"); got != "" {
		t.Errorf("handed out while paused: %q", got)
	}
	if got := h.ok("group", "list", "emails"); !strings.HasPrefix(got, "mailers") || !strings.Contains(got, "paused") {
		t.Errorf("listed: %q", got)
	}
	h.ok("group", "update", "emails", "mailers", "--max-attempts", "0")
	if g := info(); !g.Paused {
		t.Errorf("an update resumed it: %+v", g)
	}
	h.ok("group", "resume", "emails", "mailers")
	if got := h.ok("consume", "emails", "--group", "mailers", "--ack", "--count", "4", "-o", "raw"); got != "v\nv\nv\nv\n" {
		t.Errorf("consumed: %q", got)
	}
	if g := info(); g.Totals.Acked != 4 || g.Ready != 0 {
		t.Errorf("all are done: %+v", g)
	}
	if got := h.run("", "group", "seek", "emails", "mailers", "0"); got.code != 2 || !strings.Contains(got.err, "--shard") {
		t.Errorf("an offset of which shard: %+v", got)
	}
	h.ok("push", "emails", "w", "--key", "a")
	h.ok("group", "seek", "emails", "mailers", "latest")
	if g := info(); g.Ready != 0 {
		t.Errorf("behind the last: %+v", g)
	}
	h.ok("group", "reset", "emails", "mailers")
	if g := info(); g.Totals.Acked != 0 {
		t.Errorf("reset: %+v", g)
	}
	if got := h.ok("group", "rm", "emails", "mailers", "-o", "raw"); got != "mailers\n" {
		t.Errorf("deleted: %q", got)
	}
	if got := h.run("", "group", "rm", "emails", "mailers"); got.code != 5 {
		t.Errorf("deleted again: %+v", got)
	}
}

// How a command ends says what becomes of its message.
func TestWork(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("queue", "create", "jobs")
	for _, v := range []string{"good", "bad", "flaky"} {
		h.ok("push", "jobs", v, "--key", "k/"+v, "--header", "kind="+v)
	}
	const script = `v=$(cat)
		test "$MARGAY_KEY" = "k/$v" && test "$MARGAY_HEADER_KIND" = "$v" && test "$MARGAY_QUEUE" = default/default/jobs || exit 9
		echo "$v is $MARGAY_ID"
		case $v in bad) echo no good >&2; exit 65;; flaky) test $MARGAY_ATTEMPT -ge 2;; esac`
	got := h.run("", "work", "jobs", "--group", "g", "--count", "4", "-o", "json", "--", "sh", "-c", script)
	all := objects[message](t, got.out)
	var outcomes []string
	for _, m := range all {
		outcomes = append(outcomes, m.ID+" "+m.Outcome)
	}
	if want := "0/0 done, 0/1 rejected, 0/2 failed, 0/2 done"; got.code != 0 || strings.Join(outcomes, ", ") != want {
		t.Errorf("%v, want %s: %+v", outcomes, want, got)
	}
	if !strings.Contains(got.err, "flaky is 0/2") {
		t.Errorf("what commands print is gone: %+v", got)
	}
	dead := objects[message](t, h.ok("deadletter", "list", "jobs", "g", "-o", "json"))
	if len(dead) != 1 || dead[0].Value != "bad" || dead[0].Error != "exit status 65: no good" {
		t.Errorf("dead letters: %+v", dead)
	}
	h.ok("push", "jobs", "good", "--key", "k/good", "--header", "kind=good")
	got = h.run("", "work", "jobs", "--group", "g", "--count", "1", "--", "sh", "-c", script)
	if got.code != 0 || got.out != "good is 0/3\n" || got.err != "" {
		t.Errorf("in text: %+v", got)
	}
}

// An interrupted worker lets its commands end, and one whose commands do not end gives their messages back.
func TestWorkStops(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("queue", "create", "jobs")
	h.ok("push", "jobs", "x")
	const script = "echo begun; until test -e release; do sleep 0.01; done; echo ended"
	w := h.start("work", "jobs", "--group", "g", "--drain", "1ms", "--", "sh", "-c", script)
	w.await(w.out, "begun")
	w.signal(syscall.SIGTERM)
	if code := w.exit(patience); code != 0 || !strings.Contains(w.err.String(), "given back") || strings.Contains(w.out.String(), "ended") {
		t.Errorf("exit %d: %s%s", code, w.out, w.err)
	}
	w = h.start("work", "jobs", "--group", "g", "--drain", "10m", "--", "sh", "-c", script+"; echo attempt $MARGAY_ATTEMPT")
	w.await(w.out, "begun")
	w.signal(syscall.SIGTERM)
	w.await(w.err, "1 command may take 10m to end")
	if err := os.WriteFile(h.path("release"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.exit(patience); code != 0 || !strings.HasSuffix(w.out.String(), "ended\nattempt 1\n") {
		t.Errorf("exit %d: %s%s", code, w.out, w.err)
	}
	if got := h.ok("queue", "peek", "jobs", "--group", "g"); got != "" {
		t.Errorf("left: %q", got)
	}
}

// Working goes on when the broker comes back, and says so. What was under way is not begun a second time.
func TestWorkOverARestart(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("queue", "create", "jobs")
	h.ok("group", "create", "jobs", "g", "--ack-wait", "500ms")
	h.ok("push", "jobs", "before")
	const script = "v=$(cat); echo begun $v; until test $v != long || test -e release; do sleep 0.01; done; echo $v is done"
	w := h.start("work", "jobs", "--group", "g", "--", "sh", "-c", script)
	w.await(w.out, "before is done\n")
	h.ok("push", "jobs", "long")
	w.await(w.out, "begun long\n")
	node.signal(syscall.SIGKILL)
	<-node.done
	h.serve()
	h.ok("push", "jobs", "behind")
	w.await(w.err, "connected again")
	if err := os.WriteFile(h.path("release"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.await(w.out, "behind is done\n")
	if said := w.err.String(); !strings.Contains(said, "lost the broker") || strings.Contains(said, "message") {
		t.Errorf("it said %q", said)
	}
	if want := "begun before\nbefore is done\nbegun long\nlong is done\nbegun behind\nbehind is done\n"; w.out.String() != want {
		t.Errorf("it did %q", w.out)
	}
	w.signal(syscall.SIGINT)
	if code := w.exit(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	if got := h.ok("queue", "peek", "jobs", "--group", "g"); got != "" {
		t.Errorf("left: %q", got)
	}
}

// A worker whose group is gone says so and ends; one whose command is gone costs no message an attempt.
func TestWorkEnds(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("queue", "create", "jobs")
	w := h.start("work", "jobs", "--group", "g", "--", "cat")
	h.ok("push", "jobs", "x\n")
	w.await(w.out, "x\n")
	h.ok("group", "delete", "jobs", "g")
	if code := w.exit(patience); code != 5 || !strings.Contains(w.err.String(), "group g of jobs") {
		t.Errorf("exit %d: %s", code, w.err)
	}
	if err := os.WriteFile(h.path("tool"), []byte("#!/no/such/interpreter\n"), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	h.ok("push", "jobs", "y")
	if got := h.run("", "work", "jobs", "--group", "new", "--", "./tool"); got.code != 2 || !strings.Contains(got.err, "given back") {
		t.Errorf("of no use: %+v", got)
	}
	all := objects[message](t, h.ok("consume", "jobs", "--group", "new", "--count", "1", "-o", "json"))
	if len(all) != 1 || all[0].Attempt != 1 {
		t.Errorf("afterwards: %+v", all)
	}
}
