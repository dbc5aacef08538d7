// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// What makes no sense is said before anything is tried: no cluster is needed to be told.
func TestMisuseOfKeys(t *testing.T) {
	tests := []struct{ args, says string }{
		{"put a", "--lines"},
		{"put a b c d", "accepts"},
		{"put a b c --if-absent --if-version 1", "give one"},
		{"put a --lines --if-absent", "without --lines"},
		{"put a b --lines", "give one"},
		{"put a b c --ttl 30", "duration"},
		{"put a b c --header x", "--header"},
		{"get a", "requires"},
		{"get a b c --at-least 1", "one key"},
		{"del a", "no key"},
		{"del a b --all", "give one"},
		{"del a --prefix x --all", "give one"},
		{"del a --prefix=", "--all"},
		{"del a b c --if-version 1", "one key"},
		{"incr a", "accepts"},
		{"incr a b 1.5", "whole number"},
		{"incr a b 9223372036854775808", "64 bits"},
		{"touch a b", "--ttl"},
		{"watch a --count 0", "at least one"},
		{"watch a --key b --prefix c", "give one"},
		{"watch a --snapshot --from 1", "give one"},
		{"cache keys", "accepts"},
		{"cache keys a --count --values", "alone"},
		{"cache keys a --prefix x --pattern y", "give one"},
		// A number below zero looks like a flag.
		{"incr stock lamps -2", "incr CACHE KEY -- -2"},
		{"put stock lamps -2", "put CACHE KEY -- -2"},
	}
	for _, test := range tests {
		got := shell{}.run(t.Context(), strings.Fields(test.args)...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, test.says) || !strings.Contains(got.err, "nothing was tried") {
			t.Errorf("margay %s: %+v, want %q", test.args, got, test.says)
		}
	}
}
