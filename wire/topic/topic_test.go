// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/topic"
)

func TestValidate(t *testing.T) {
	long := strings.Repeat("a/", topic.MaxPattern/2)
	for _, good := range []string{"a", "/", "a/b", "+", "#", "+/#", "a/+/telemetry", "a//b", "/a", "a/", "a/#", "device/+/#", "kéy", "\x00", long} {
		if err := topic.Validate(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "a+", "+a", "a/b+/c", "#/a", "a/#/b", "a#", "a/b#", "++", "##", "#/", "a/#/", "+#", long + "x"} {
		if err := topic.Validate(bad); !errors.Is(err, topic.ErrPattern) {
			t.Errorf("%.50q: %v", bad, err)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern, key string
		want         bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"ab", "a", false},
		{"a", "a/", false},
		{"a/", "a", false},
		{"a/", "a/", true},
		{"a", "", false},
		{"+", "", true},
		{"+", "a", true},
		{"+", "a/b", false},
		{"+/+", "/", true},
		{"#", "", true},
		{"#", "a/b/c", true},
		{"a/#", "a", true},
		{"a/#", "a/", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"a/#", "b", false},
		{"a/+/#", "a", false},
		{"a/+/#", "a/b", true},
		{"device/+/telemetry", "device/7/telemetry", true},
		{"device/+/telemetry", "device//telemetry", true},
		{"device/+/telemetry", "device/7/8/telemetry", false},
		{"device/+/telemetry", "device/7/telemetry/x", false},
		{"device/+/telemetry", "device/7", false},
		// Not patterns: nothing more than themselves.
		{"a/#/b", "a/x/b", false},
		{"#/b", "a/b", false},
		{"a+", "ab", false},
		{"a/b#", "a/bc", false},
		{"", "a", false},
	} {
		if got := topic.Match(tc.pattern, []byte(tc.key)); got != tc.want {
			t.Errorf("%q on %q: %v", tc.pattern, tc.key, got)
		}
	}
}

// compose returns every sequence of 1 to most of the levels.
func compose(levels []string, most int) []string {
	out := append([]string{}, levels...)
	for from, n := 0, 1; n < most; n++ {
		to := len(out)
		for _, head := range out[from:to] {
			for _, l := range levels {
				out = append(out, head+"/"+l)
			}
		}
		from = to
	}
	return out
}

func allPatterns() []string {
	heads := compose([]string{"a", "b", "", "+"}, 3)
	out := []string{"#"}
	for _, p := range heads {
		if p != "" {
			out = append(out, p)
		}
		out = append(out, p+"/#")
	}
	return out
}

// reference is Match said in another way.
func reference(pattern, key []string) bool {
	switch {
	case len(pattern) == 1 && pattern[0] == "#":
		return true
	case len(pattern) == 0 || len(key) == 0:
		return len(pattern) == len(key)
	}
	return (pattern[0] == "+" || pattern[0] == key[0]) && reference(pattern[1:], key[1:])
}

// TestContainsIsExact compares with every key of a world that has names which no pattern spells out, and more levels than
// any pattern has. There, one pattern lies within another exactly when the keys that it matches do.
func TestContainsIsExact(t *testing.T) {
	patterns, keys := allPatterns(), compose([]string{"a", "b", "", "c"}, 5)
	matched := make(map[string][]bool, len(patterns))
	for _, p := range patterns {
		if err := topic.Validate(p); err != nil {
			t.Fatal(err)
		}
		row := make([]bool, len(keys))
		for i, k := range keys {
			row[i] = topic.Match(p, []byte(k))
			if row[i] != reference(strings.Split(p, "/"), strings.Split(k, "/")) {
				t.Fatalf("%q on %q: %v", p, k, row[i])
			}
		}
		matched[p] = row
	}
	for _, wider := range patterns {
		for _, narrower := range patterns {
			want := true
			w := matched[wider]
			for i, m := range matched[narrower] {
				want = want && (!m || w[i])
			}
			if got := topic.Contains(wider, narrower); got != want {
				t.Errorf("%q contains %q: %v, want %v", wider, narrower, got, want)
			}
		}
	}
}

func TestContainsPrefixIsExact(t *testing.T) {
	keys := compose([]string{"a", "b", "", "ab", "bc"}, 5)
	prefixes := append(compose([]string{"a", "b", ""}, 3), "")
	for _, p := range allPatterns() {
		for _, prefix := range prefixes {
			want := true
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) && !topic.Match(p, []byte(k)) {
					want = false
					break
				}
			}
			if got := topic.ContainsPrefix(p, prefix); got != want {
				t.Errorf("%q contains the prefix %q: %v, want %v", p, prefix, got, want)
			}
		}
	}
}

func drawPattern(t *rapid.T, name string) string {
	level := rapid.OneOf(rapid.SampledFrom([]string{"+", "+", "a", "b"}), rapid.StringMatching(`[a-c]{0,3}`))
	levels := rapid.SliceOfN(level, 1, 8).Draw(t, name)
	if rapid.Bool().Draw(t, name+" has a rest") {
		levels = append(levels, "#")
	}
	p := strings.Join(levels, "/")
	if p == "" {
		return "+"
	}
	return p
}

// drawKey makes a key that the pattern matches.
func drawKey(t *rapid.T, pattern string) string {
	level := rapid.StringMatching(`[a-d]{0,3}`)
	var key []string
	for l := range strings.SplitSeq(pattern, "/") {
		switch l {
		case "+":
			key = append(key, level.Draw(t, "level"))
		case "#":
			least := 0
			if len(key) == 0 {
				least = 1
			}
			key = append(key, rapid.SliceOfN(level, least, 4).Draw(t, "rest")...)
		default:
			key = append(key, l)
		}
	}
	return strings.Join(key, "/")
}

// TestContainedIsMatched: what lies within a pattern gives it no key that it would not match itself.
func TestContainedIsMatched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		narrower := drawPattern(t, "narrower")
		key := drawKey(t, narrower)
		if !topic.Match(narrower, []byte(key)) {
			t.Fatalf("%q does not match %q", narrower, key)
		}
		wider := widen(t, narrower)
		if !topic.Contains(wider, narrower) {
			t.Fatalf("%q does not contain %q", wider, narrower)
		}
		for _, w := range []string{wider, drawPattern(t, "wider")} {
			if topic.Contains(w, narrower) && !topic.Match(w, []byte(key)) {
				t.Fatalf("%q contains %q and does not match %q", w, narrower, key)
			}
		}
	})
}

// widen makes a pattern that matches all that the other does.
func widen(t *rapid.T, pattern string) string {
	levels := strings.Split(pattern, "/")
	for i := range levels {
		switch rapid.IntRange(0, 5).Draw(t, "widen") {
		case 0:
			return strings.Join(append(levels[:i:i], "#"), "/")
		case 1, 2:
			if levels[i] != "#" {
				levels[i] = "+"
			}
		}
	}
	p := strings.Join(levels, "/")
	if p == "" {
		return "+"
	}
	return p
}

func TestNothingAllocates(t *testing.T) {
	key := []byte("device/12345678/telemetry/temperature")
	if n := testing.AllocsPerRun(100, func() {
		_ = topic.Match("device/+/telemetry/#", key)
		_ = topic.Contains("device/#", "device/+/telemetry/#")
		_ = topic.ContainsPrefix("device/#", "device/12")
		_ = topic.Validate("device/+/telemetry/#")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMatch: no pattern, valid or not, makes more of itself than the reference does.
func FuzzMatch(f *testing.F) {
	for _, p := range []string{"a/+/#", "a/#/b", "", "/", "a+", "#"} {
		f.Add(p, "a/b/c", "a/+")
	}
	f.Fuzz(func(t *testing.T, pattern, key, other string) {
		got, want := topic.Match(pattern, []byte(key)), reference(strings.Split(pattern, "/"), strings.Split(key, "/"))
		valid := topic.Validate(pattern) == nil
		if got && !want || valid && !got && want {
			t.Fatalf("%q on %q: %v", pattern, key, got)
		}
		if !valid {
			return
		}
		if topic.ContainsPrefix(pattern, other) && strings.HasPrefix(key, other) && !got {
			t.Fatalf("%q contains the prefix %q and does not match %q", pattern, other, key)
		}
		if topic.Validate(other) == nil && topic.Contains(other, pattern) && got && !topic.Match(other, []byte(key)) {
			t.Fatalf("%q contains %q and does not match %q", other, pattern, key)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	key := []byte("device/12345678/telemetry/temperature")
	b.ReportAllocs()
	for b.Loop() {
		if !topic.Match("device/+/telemetry/#", key) {
			b.Fatal("no match")
		}
	}
}
