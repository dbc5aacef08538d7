// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestSubFilters(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "devices")
	for _, key := range []string{"device/1/telemetry", "device/1/command", "device/2/telemetry", "other"} {
		h.ok("pub", "devices", key, "--key", key)
	}
	h.ok("pub", "devices", "no key")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--pattern", "device/+/telemetry"}, "device/1/telemetry\ndevice/2/telemetry\n"},
		{[]string{"--pattern", "device/1/#"}, "device/1/telemetry\ndevice/1/command\n"},
		{[]string{"--key", "other"}, "other\n"},
		{[]string{"--prefix", "device/2"}, "device/2/telemetry\n"},
		{[]string{"--key", "other", "--key", "device/1/command", "--pattern", "device/1/#"}, "device/1/telemetry\ndevice/1/command\nother\n"},
		{[]string{"--key", "absent"}, ""},
	} {
		if got := h.ok(append([]string{"sub", "devices", "--end", "-o", "raw"}, c.args...)...); got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
	if got := h.run("", "sub", "devices", "--end", "--pattern", "a/#/b"); got.code != 4 {
		t.Errorf("a pattern that is none: %+v", got)
	}
}
