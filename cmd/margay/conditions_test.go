// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestPubConditions(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "orders", "--shards", "4", "--dedup-window", "1m")
	if got := h.ok("stream", "info", "orders"); !strings.Contains(got, "for 1m") {
		t.Errorf("info: %s", got)
	}
	h.ok("stream", "update", "orders", "--dedup-window", "1h")
	h.ok("pub", "orders", "first", "--key", "42", "--if-version", "0")
	got := h.run("", "pub", "orders", "late", "--key", "42", "--if-version", "0", "-o", "json")
	if got.code != 4 || !strings.Contains(got.err, `"conflict"`) || !strings.Contains(got.err, `"version": 1`) && !strings.Contains(got.err, `"version":1`) {
		t.Errorf("a lost comparison: %+v", got)
	}
	if got := h.run("", "pub", "orders", "late", "--key", "42", "--if-version", "0"); !strings.Contains(got.err, "--if-version 1") {
		t.Errorf("a lost comparison: %+v", got)
	}
	if got := h.ok("pub", "orders", "second", "--key", "42", "--if-version", "1", "-o", "json"); !strings.Contains(got, `"version":2`) && !strings.Contains(got, `"version": 2`) {
		t.Errorf("its successor: %s", got)
	}
	home := h.ok("pub", "orders", "beside it", "--shard-key", "42", "-o", "raw")
	if home != "2\n" {
		t.Errorf("with the shard key of another it is at %q", home)
	}
	h.ok("pub", "orders", "once", "--dedup-id", "x")
	if got := h.ok("pub", "orders", "once", "--dedup-id", "x"); !strings.Contains(got, "stored before") {
		t.Errorf("the second time: %s", got)
	}
	for _, args := range [][]string{
		{"--if-version", "1"},
		{"--lines", "--if-version", "1", "--key", "k"},
		{"--lines", "--dedup-id", "x"},
		{"--dedup-id", ""},
		{"--if-version", "-1", "--key", "k"},
	} {
		if got := h.run("v\n", append([]string{"pub", "orders"}, args...)...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
