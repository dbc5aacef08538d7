// SPDX-License-Identifier: Apache-2.0

// Package topic decides which keys a topic pattern matches and which patterns lie within another; it works on
// strings only, touches nothing, and refuses patterns of any other form.
//
// Keys and patterns are levels parted by "/". A level may be empty, also the first and the last: "a/" has two. In a
// pattern the level "+" stands for any one level and "#", the last, for any number of further ones, none included: "a/#"
// matches "a", "a/b" and "a/b/c", and "#" alone matches every key. A record without a key is matched by nothing; callers
// must not take it for one with an empty key, which is one empty level.
package topic

import (
	"errors"
	"fmt"
	"strings"
)

// MaxPattern bounds a pattern in bytes, as a key.
const MaxPattern = 4 << 10

// ErrPattern is what Validate refuses with.
var ErrPattern = errors.New("not a topic pattern")

const (
	anyLevel  = "+"
	anyLevels = "#"
)

// Validate refuses what is not a pattern: an empty one, one above MaxPattern, one where "+" or "#" is part of a level, and
// one that goes on behind "#".
func Validate(pattern string) error {
	if pattern == "" || len(pattern) > MaxPattern {
		return fmt.Errorf("pattern of %d bytes, want 1 to %d: %w", len(pattern), MaxPattern, ErrPattern)
	}
	for rest, more := pattern, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		switch {
		case level == anyLevels && more:
			return fmt.Errorf("pattern %.100q: # is not the last level: %w", pattern, ErrPattern)
		case level != anyLevel && level != anyLevels && strings.ContainsAny(level, "+#"):
			return fmt.Errorf("pattern %.100q: level %.100q is neither a name nor + nor #: %w", pattern, level, ErrPattern)
		}
	}
	return nil
}
