// SPDX-License-Identifier: Apache-2.0

package load

import (
	"os"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	const line = "4242 (a (bad) name) S 1 4242 4242 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 100 123456 77 18446744073709551615 1 1 0"
	u, ok := parseStat([]byte(line), 4096)
	if !ok || u.cpu != 2 || u.rss != 77*4096 {
		t.Errorf("%+v, %v: want 2 s and 77 pages", u, ok)
	}
	for _, bad := range []string{"", "1 (x) S 1 2", strings.Replace(line, " 150 ", " x ", 1)} {
		if _, ok := parseStat([]byte(bad), 4096); ok {
			t.Errorf("%q is understood", bad)
		}
	}
	if _, ok := processUsage(os.Getpid()); !ok {
		t.Error("this process cannot be read")
	}
}
