// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
	"margay.dev/wire/topic"
)

func TestFilterMatches(t *testing.T) {
	for _, tc := range []struct {
		filter Filter
		key    string
		want   bool
	}{
		{Filter{FilterExact, "a/b"}, "a/b", true},
		{Filter{FilterExact, "a/b"}, "a/b/c", false},
		{Filter{FilterExact, ""}, "", true},
		{Filter{FilterPrefix, "a/b"}, "a/bc", true},
		{Filter{FilterPrefix, "a/b"}, "a/", false},
		{Filter{FilterPrefix, ""}, "x", true},
		{Filter{FilterPattern, "a/+"}, "a/b", true},
		{Filter{FilterPattern, "a/+"}, "a/b/c", false},
		{Filter{0, "a"}, "a", false},
		{Filter{4, "a"}, "a", false},
	} {
		if got := tc.filter.Matches([]byte(tc.key)); got != tc.want {
			t.Errorf("%s on %q: %v", tc.filter, tc.key, got)
		}
		if tc.filter.Matches(nil) {
			t.Errorf("%s lets a record without a key through", tc.filter)
		}
	}
	key := []byte("device/7/telemetry")
	if n := testing.AllocsPerRun(100, func() {
		_ = Filter{FilterExact, "device"}.Matches(key)
		_ = Filter{FilterPrefix, "device/"}.Matches(key)
		_ = Filter{FilterPattern, "device/+/#"}.Matches(key)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFilterValidate(t *testing.T) {
	long := strings.Repeat("k", batch.MaxKey)
	for _, f := range []Filter{{FilterExact, ""}, {FilterExact, long}, {FilterPrefix, "+#"}, {FilterPattern, "a/#"}} {
		if err := f.Validate(); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	for _, f := range []Filter{{0, "a"}, {4, "a"}, {FilterExact, long + "k"}, {FilterPattern, ""}, {FilterPattern, "a#"}} {
		if f.Validate() == nil {
			t.Errorf("%s is accepted", f)
		}
	}
}

// TestFilterWithinItsGrant: what lies within a pattern lets nothing through that the pattern does not match.
func TestFilterWithinItsGrant(t *testing.T) {
	text := rapid.StringMatching(`[ab/]{0,6}`)
	pattern := rapid.StringMatching(`([ab]|\+)(/([ab]?|\+)){0,3}(/#)?|#`)
	rapid.Check(t, func(t *rapid.T) {
		grant := pattern.Draw(t, "grant")
		f := Filter{Kind: FilterKind(rapid.IntRange(1, 3).Draw(t, "kind"))}
		if f.Kind == FilterPattern {
			f.Value = pattern.Draw(t, "pattern")
		} else {
			f.Value = text.Draw(t, "value")
		}
		key := []byte(text.Draw(t, "key"))
		switch f.Kind {
		case FilterExact:
			key = []byte(f.Value)
		case FilterPrefix:
			key = append([]byte(f.Value), key...)
		default: // a pattern that may or may not match the key
		}
		if f.Within(grant) && f.Matches(key) && !topic.Match(grant, key) {
			t.Fatalf("%s lies within %q and lets %q through", f, grant, key)
		}
	})
	for _, f := range []Filter{{FilterExact, "a/b"}, {FilterPrefix, "a/"}, {FilterPattern, "a/+/c"}} {
		if !f.Within("a/#") || f.Within("b/#") || (Filter{9, f.Value}).Within("#") {
			t.Errorf("%s", f)
		}
	}
}

// TestSubscribeBoundsFilters: as many as may be, and one more.
func TestSubscribeBoundsFilters(t *testing.T) {
	f := &Subscribe{Shards: []Start{{}}, Filters: make([]Filter, MaxFilters)}
	for i := range f.Filters {
		f.Filters[i] = Filter{FilterExact, "k"}
	}
	if err := new(Subscribe).ParseFlags(FlagFilters, f.Append(nil)); err != nil {
		t.Error(err)
	}
	f.Filters = append(f.Filters, Filter{FilterExact, "k"})
	if new(Subscribe).ParseFlags(FlagFilters, f.Append(nil)) == nil {
		t.Error("one filter too many")
	}
}
