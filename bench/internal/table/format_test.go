// SPDX-License-Identifier: Apache-2.0

package table

import "testing"

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "/s", "0 /s"},
		{3921.4, "/s", "3.92 k/s"},
		{632_123, "/s", "632 k/s"},
		{1_870_000, "/s", "1.87 M/s"},
		{12.34, "/s", "12.3 /s"},
		{418.77, "MB/s", "419 MB/s"},
		{1234.5, "MB/s", "1234 MB/s"},
		{18 << 10, "B", "18.0 KiB"},
		{39.5 * (1 << 20), "B", "39.5 MiB"},
		{12, "B", "12.0 B"},
		{0.0123, "", "0.0123"},
		{1234, "", "1.23 k"},
	} {
		if got := Format(c.v, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 12345678: "12,345,678"} {
		if got := Count(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
