// SPDX-License-Identifier: Apache-2.0

package arg_test

import (
	"testing"

	"margay.dev/cmd/internal/arg"
)

func TestHeader(t *testing.T) {
	for in, want := range map[string][2]string{"a=b": {"a", "b"}, "a=": {"a", ""}, "a=b=c": {"a", "b=c"}} {
		name, value, err := arg.Header(in)
		if err != nil || name != want[0] || value != want[1] {
			t.Errorf("Header(%q) = %q, %q, %v; want %q", in, name, value, err, want)
		}
	}
	for _, in := range []string{"", "a", "=b"} {
		if _, _, err := arg.Header(in); err == nil {
			t.Errorf("Header(%q): want an error", in)
		}
	}
}
