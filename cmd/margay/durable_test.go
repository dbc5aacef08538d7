// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// A name of a reader is kept: the next run goes on behind what the last one printed, whatever was restarted between.
func TestSubDurable(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "orders")
	for _, v := range []string{"a", "b", "c", "d"} {
		h.ok("pub", "orders", v)
	}
	read := func(args ...string) string {
		return h.ok(append([]string{"sub", "orders", "--durable", "reports", "--from", "earliest", "--end", "-o", "raw"}, args...)...)
	}
	if got := read("--count", "2"); got != "a\nb\n" {
		t.Errorf("first run: %q", got)
	}
	if got := read(); got != "c\nd\n" {
		t.Errorf("second run: %q", got)
	}
	if got := read(); got != "" {
		t.Errorf("nothing is new: %q", got)
	}
	type cursor struct {
		Name   string
		Offset uint64
		Behind uint64
	}
	h.ok("pub", "orders", "e")
	all := objects[cursor](t, h.ok("stream", "cursors", "orders", "-o", "json"))
	if len(all) != 1 || all[0] != (cursor{"reports", 4, 1}) {
		t.Errorf("cursors: %+v", all)
	}
	if got := h.ok("stream", "cursors", "orders"); !strings.HasPrefix(got, "reports") {
		t.Errorf("cursors in words: %q", got)
	}
	h.ok("stream", "cursor-delete", "orders", "reports")
	for want, args := range map[int][]string{
		5: {"stream", "cursor-delete", "orders", "reports"},
		2: {"sub", "orders", "--durable", "Not A Name"},
	} {
		if got := h.run("", args...); got.code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, got.code, want, got.err)
		}
	}
	if got := h.run("", "stream", "cursors", "nosuch"); got.code != 5 {
		t.Errorf("cursors of no stream: %+v", got)
	}
	if got := read("--count", "1"); got != "a\n" {
		t.Errorf("deleted and new: %q", got)
	}
}
