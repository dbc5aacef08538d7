// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

type ackLine struct {
	Line       uint64
	Shard      uint32
	Offset     uint64
	Generation uint64
	Replicas   int
	Flushed    bool
}

type recordLine struct {
	Shard       uint32
	Offset      uint64
	Generation  uint64
	Key         *string
	KeyEncoding string `json:"key_encoding"`
	Headers     []struct{ Key, Value, Encoding string }
	Value       *string
	Encoding    string
	AppendTime  time.Time `json:"append_time"`
}

func TestPublishAndSubscribe(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "orders")

	got := h.run("", "pub", "orders", "héllo", "--key", "k1", "--header", "a=b", "--header", "a=", "-o", "json")
	acks := objects[ackLine](t, got.out)
	if len(acks) != 1 || acks[0].Offset != 0 || acks[0].Generation == 0 || acks[0].Replicas != 1 || !acks[0].Flushed || got.err != "" {
		t.Fatalf("pub: %+v", got)
	}
	if got := h.run("\xff\x00binary\n", "pub", "orders", "-o", "raw"); got.code != 0 || got.out != "1\n" {
		t.Fatalf("pub of standard input: %+v", got)
	}
	if got := h.run("", "pub", "orders", ""); got.code != 0 || !strings.HasPrefix(got.out, "orders shard 0 offset 2") {
		t.Fatalf("pub of an empty value: %+v", got)
	}

	records := objects[recordLine](t, h.ok("sub", "orders", "--from", "earliest", "--end", "-o", "json"))
	if len(records) != 3 {
		t.Fatalf("%d records", len(records))
	}
	first, binary, empty := records[0], records[1], records[2]
	if *first.Key != "k1" || *first.Value != "héllo" || first.Encoding != "text" || first.AppendTime.IsZero() ||
		len(first.Headers) != 2 || first.Headers[0].Value != "b" || first.Headers[1].Value != "" {
		t.Errorf("first: %+v", first)
	}
	if binary.Key != nil || *binary.Value != "/wBiaW5hcnkK" || binary.Encoding != "base64" {
		t.Errorf("binary: %+v", binary)
	}
	if empty.Value == nil || *empty.Value != "" {
		t.Errorf("an empty value became a tombstone: %+v", empty)
	}
	if got := h.ok("sub", "orders", "--from", "1", "--end", "-o", "raw"); got != "\xff\x00binary\n\n\n" {
		t.Errorf("raw: %q", got)
	}
	if got := h.ok("sub", "orders", "--from", "earliest", "--count", "1"); got != "0/0\tk1\théllo\n" {
		t.Errorf("text: %q", got)
	}
	if got := h.ok("sub", "orders", "--from", "-1h", "--count", "1", "-o", "raw"); got != "héllo\n" {
		t.Errorf("from an hour ago: %q", got)
	}
	if got := h.ok("sub", "orders", "--from", time.Now().Add(time.Hour).Format(time.RFC3339), "--end"); got != "" {
		t.Errorf("from the future: %q", got)
	}
}

func TestPublishLines(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "lines", "--shards", "3")
	var in strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&in, `{"id":"k%d","n":%d}`+"\n", i%7, i)
	}
	got := h.run(in.String(), "pub", "lines", "--lines", "--key-from", "json:/id", "-o", "json")
	acks := objects[ackLine](t, got.out)
	if got.code != 0 || len(acks) != 5000 || got.err != "" {
		t.Fatalf("exit %d, %d acks, %s", got.code, len(acks), got.err)
	}
	for i, ack := range acks {
		if ack.Line != uint64(i+1) {
			t.Fatalf("ack %d is of line %d", i, ack.Line)
		}
	}
	// Everything is there once, at the offset it was acknowledged with, and each key in its order.
	read := map[uint32]map[uint64]string{}
	for _, rec := range objects[recordLine](t, h.ok("sub", "lines", "--end", "-o", "json")) {
		if read[rec.Shard] == nil {
			read[rec.Shard] = map[uint64]string{}
		}
		read[rec.Shard][rec.Offset] = *rec.Key + " " + *rec.Value
	}
	lines := strings.Split(strings.TrimSuffix(in.String(), "\n"), "\n")
	next := map[string]uint64{}
	for i, ack := range acks {
		key := fmt.Sprintf("k%d", i%7)
		if got, want := read[ack.Shard][ack.Offset], key+" "+lines[i]; got != want {
			t.Fatalf("line %d: %q at shard %d offset %d, want %q", i+1, got, ack.Shard, ack.Offset, want)
		}
		if ack.Offset < next[key] {
			t.Fatalf("line %d of key %s is before an earlier one", i+1, key)
		}
		next[key] = ack.Offset + 1
	}
	if len(read) != 3 {
		t.Errorf("7 keys went to %d of 3 shards", len(read))
	}
	// One shard alone, from an offset.
	if got := h.run("", "sub", "lines", "--from", "0", "--end"); got.code != 2 || !strings.Contains(got.err, "--shard") {
		t.Errorf("an offset without a shard: %+v", got)
	}
	one := h.ok("sub", "lines", "--from", "1", "--shard", "2", "--end", "-o", "raw")
	if n := strings.Count(one, "\n"); n != len(read[2])-1 {
		t.Errorf("shard 2 from offset 1: %d records, want %d", n, len(read[2])-1)
	}
}

// A line is cut at \n and nowhere else, and what was put in comes out byte for byte.
func TestLinesComeOutAsTheyWentIn(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "bytes")
	const in = "a\r\n\n\x00\xff\n\tb \n"
	if got := h.run(in, "pub", "bytes", "--lines"); got.code != 0 || got.out != "" || got.err != "" {
		t.Fatalf("pub --lines is not quiet when piped: %+v", got)
	}
	if got := h.ok("sub", "bytes", "--end", "-o", "raw"); got != in {
		t.Errorf("%q came out as %q", in, got)
	}
}

func TestLinesThatFail(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "lines")
	tests := []struct {
		in, args, says string
		code           int
	}{
		{"a\nb\nno key\nc\n", "--key-from re:^(.)$", "lines 1-2: certainly in; line 3: certainly not in; no line after 3 was sent", 4},
		{"a\n" + strings.Repeat("x", 9<<20), "", "line 1: certainly in; line 2: certainly not in; no line after 2 was sent", 4},
		{"a\n", "--ack most", "--ack", 2},
		{"a\n", "--key x --key-from re:a", "--key-from", 2},
		{"a\n", "--ttl 1s --delay 2s", "--ttl", 2},
		{"a\n", "--header x", "--header", 2},
	}
	for _, test := range tests {
		got := h.run(test.in, append([]string{"pub", "lines", "--lines"}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.Contains(got.err, test.says) {
			t.Errorf("pub --lines %s: %+v, want exit %d and %q", test.args, got, test.code, test.says)
		}
	}
	got := h.run("ok\nbad\n", "pub", "lines", "--lines", "--key-from", "re:ok", "-o", "json")
	type report struct {
		Exit    int
		Code    string
		Details struct {
			Line    uint64
			In, Out []struct{ First, Last uint64 }
		}
	}
	all := objects[report](t, got.err)
	if len(all) != 1 || all[0].Exit != 4 || all[0].Details.Line != 2 || len(all[0].Details.In) != 1 || len(all[0].Details.Out) != 1 {
		t.Errorf("as an object: %s", got.err)
	}
}

// An interrupted pipeline must not wait for input that never comes, and must say where to go on.
func TestLinesInterrupted(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "lines")
	pub := h.start("pub", "lines", "--lines", "-o", "json")
	pub.say("a\nb\n")
	pub.await(pub.out, `"line":2`)
	pub.signal(syscall.SIGINT)
	if code := pub.exit(patience); code != 1 || !strings.Contains(pub.err.String(), "lines 1-2: certainly in; no line after 2 was sent") {
		t.Errorf("exit %d, %s", code, pub.err)
	}
}

// A broker that dies under a pipeline and comes back costs nothing but time.
func TestLinesSurviveARestart(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "lines")
	pub := h.start("pub", "lines", "--lines", "-o", "json")
	pub.say("0\n")
	pub.await(pub.out, `"line":1,`)
	pub.say("1\n2\n3\n")
	node.signal(syscall.SIGKILL)
	<-node.done
	pub.say("4\n5\n")
	h.serve()
	pub.say("6\n")
	pub.await(pub.out, `"line":7,`)
	if err := pub.in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := pub.exit(patience); code != 0 {
		t.Errorf("exit %d, %s", code, pub.err)
	}
	if got := h.ok("sub", "lines", "--end", "-o", "raw"); got != "0\n1\n2\n3\n4\n5\n6\n" {
		t.Errorf("what is there: %q", got)
	}
}

// With nobody there any more the lines in flight are unknown, and that is what is said.
func TestLinesWithoutAnAnswer(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "lines")
	pub := h.start("pub", "lines", "--lines", "--timeout", "2s", "-o", "json")
	pub.say("a\n")
	pub.await(pub.out, `"line":1,`)
	node.signal(syscall.SIGSTOP)
	pub.say("b\nc\n")
	code := pub.exit(patience)
	said := pub.err.String()
	if code != 1 || !strings.Contains(said, "line 1: certainly in; lines 2-3: unknown (may be in)") || !strings.Contains(said, "before you send them again") {
		t.Errorf("exit %d, %s", code, said)
	}
}

func TestFailures(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "orders")
	tests := []struct {
		args string
		code int
	}{
		{"pub nowhere x", 5},
		{"sub nowhere", 5},
		{"stream info nowhere", 5},
		{"stream delete nowhere", 5},
		{"sub orders --shard 7", 5},
		{"sub orders --from 99", 4},
		{"stream create orders --shards 2", 4},
		{"stream create more --replicas 3", 4},
		{"pub orders x --token wrong", 4},
		{"stream list --token wrong", 4},
		{"context use nowhere", 5},
		{"sub orders --context nowhere", 5},
		{"pub orders x --address margay://127.0.0.77:1,http://127.0.0.77:2 --timeout 300ms", 3},
		{"sub orders --address margay://127.0.0.77:1,http://127.0.0.77:2 --timeout 300ms", 3},
		{"pub orders x --address margay://127.0.0.77:1", 2},
		{"stream create elsewhere --address margay://127.0.0.77:1", 2},
		{"stream list --address http://127.0.0.1:1", 3},
		{"pub ORDERS x", 2},
		{"sub orders --from yesterday", 2},
		{"sub orders --count 0", 2},
		{"log verify nowhere", 5},
	}
	for _, test := range tests {
		got := h.run("", strings.Fields(test.args)...)
		if got.code != test.code || got.out != "" || !strings.Contains(got.err, "data:") {
			t.Errorf("margay %s: %+v, want exit %d", test.args, got, test.code)
		}
	}
	node.signal(syscall.SIGSTOP) // there, and silent: nobody can be told from nobody
	for _, args := range []string{"stream list", "sub orders", "stream info orders"} {
		start := time.Now()
		got := h.run("", append(strings.Fields(args), "--timeout", "500ms")...)
		if took := time.Since(start); got.code != 3 || took > 9*time.Second { // less than without the flag
			t.Errorf("margay %s of a frozen node: %+v after %v, want exit 3", args, got, took)
		}
	}
	node.signal(syscall.SIGCONT)
}

func TestSubSurvivesARestart(t *testing.T) {
	t.Parallel() // it mostly waits
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "orders")
	sub := h.start("sub", "orders", "--from", "earliest", "-o", "raw")
	h.ok("pub", "orders", "before")
	sub.await(sub.out, "before\n")
	node.signal(syscall.SIGKILL)
	<-node.done
	h.serve()
	sub.await(sub.err, "lost the broker")
	sub.await(sub.err, "connected again")
	h.ok("pub", "orders", "after")
	sub.await(sub.out, "after\n")
	sub.signal(syscall.SIGINT)
	if code := sub.exit(patience); code != 0 || sub.out.String() != "before\nafter\n" {
		t.Errorf("exit %d, out %q", code, sub.out)
	}
}

// A tail must end when it is told to, also while its broker is away.
func TestSubEndsWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel() // it mostly waits
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "orders")
	sub := h.start("sub", "orders", "--from", "earliest", "-o", "raw")
	h.ok("pub", "orders", "before")
	sub.await(sub.out, "before\n")
	node.signal(syscall.SIGKILL)
	<-node.done
	sub.await(sub.err, "lost the broker")
	sub.signal(syscall.SIGTERM)
	if code := sub.exit(5 * time.Second); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestLogTools(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("stream", "create", "orders")
	h.run("a\nb\n", "pub", "orders", "--lines")
	node.signal(syscall.SIGTERM)
	<-node.done
	data := ".local/share/margay"
	if got := h.ok("log", "verify", data); !strings.Contains(got, ": sound") {
		t.Errorf("verify: %s", got)
	}
	if got := h.ok("log", "dump", data, "-o", "raw"); got != "a\nb\n" {
		t.Errorf("dump: %q", got)
	}
	type shard struct {
		Sound    bool
		Segments []struct{ Offset, NextOffset uint64 }
	}
	shards := objects[shard](t, h.ok("log", "inspect", data, "-o", "json"))
	if len(shards) != 1 || !shards[0].Sound || len(shards[0].Segments) != 1 {
		t.Errorf("inspect: %+v", shards)
	}
	if got := h.ok("log", "repair", data); !strings.Contains(got, "nothing to repair") {
		t.Errorf("repair: %s", got)
	}
}

func TestContexts(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("context", "add", "other", h.path(".local/share/margay/context.yaml"))
	names := strings.Fields(h.ok("context", "ls", "-o", "raw"))
	if !slices.Equal(names, []string{"local", "other"}) {
		t.Errorf("list: %v", names)
	}
	h.ok("stream", "create", "orders", "--context", "other")
	h.ok("stream", "info", "orders", "--context", h.path(".local/share/margay/context.yaml"))
	if shown := h.ok("context", "show", "-o", "json") + h.ok("context", "show") + h.ok("context", "list", "-o", "json"); strings.Contains(shown, "mgk_") {
		t.Errorf("a secret is shown: %s", shown)
	}
	h.ok("context", "rm", "other")
	if got := h.run("", "context", "show", "other"); got.code != 5 {
		t.Errorf("show of a deleted one: %+v", got)
	}
}

func TestTrim(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "orders", "--on-full", "drop-oldest")
	h.ok("stream", "create", "wide", "--shards", "2")
	if got := h.run("a\nb\nc\nd\n", "pub", "orders", "--lines"); got.code != 0 {
		t.Fatalf("pub: %+v", got)
	}
	if got := h.ok("trim", "orders", "--before", "2"); got != "shard 0 begins at offset 2\n" {
		t.Errorf("text: %q", got)
	}
	if got := h.ok("trim", "orders", "--before", "1", "-o", "json"); got != `{"stream":"default/default/orders","shard":0,"earliest":2}`+"\n" {
		t.Errorf("json: %q", got)
	}
	if got := h.ok("sub", "orders", "--end", "-o", "raw"); got != "c\nd\n" {
		t.Errorf("what is left: %q", got)
	}
	if got := h.ok("trim", "orders", "--before", "latest", "-o", "raw"); got != "4\n" {
		t.Errorf("raw: %q", got)
	}
	if got := h.ok("trim", "wide", "--before", "-1h", "-o", "raw"); got != "0\n0\n" {
		t.Errorf("by time: %q", got)
	}
	for _, c := range []struct {
		code int
		say  string
		args []string
	}{
		{2, "--before", []string{"orders"}},
		{2, "earliest", []string{"orders", "--before", "earliest"}},
		{2, "--shard", []string{"wide", "--before", "0"}},
		{5, "no shard 7", []string{"wide", "--before", "0", "--shard", "7"}},
		{4, "nothing was trimmed", []string{"orders", "--before", "5"}},
		{5, "margay stream list", []string{"nosuch", "--before", "0"}},
	} {
		got := h.run("", append([]string{"trim"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.err, c.say) || got.out != "" {
			t.Errorf("trim %v: %+v, want exit %d and %q", c.args, got, c.code, c.say)
		}
	}
	if got := h.ok("stream", "info", "orders"); !strings.Contains(got, "on full     drop-oldest") && !strings.Contains(got, "on full    drop-oldest") {
		t.Errorf("info: %s", got)
	}
	h.ok("stream", "update", "orders", "--on-full", "refuse")
}
