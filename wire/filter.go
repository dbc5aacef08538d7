// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"

	"margay.dev/wire/batch"
	"margay.dev/wire/topic"
)

// MaxFilters bounds the filters of one subscription.
const MaxFilters = 1024

// FilterKind says how a filter reads its value.
type FilterKind uint8

// The kinds of filter.
const (
	FilterAll     FilterKind = 0 // every key; the value is empty. Of caches only: a subscription to all has no filter
	FilterExact   FilterKind = 1 // the key is the value
	FilterPrefix  FilterKind = 2 // the key begins with the value
	FilterPattern FilterKind = 3 // the key matches the value, a topic pattern
)

// Filter lets records through by their key.
type Filter struct {
	Kind  FilterKind
	Value string
}

// Matches reports whether a record with this key is let through. A record without a key (nil) never is. It allocates
// nothing.
func (f Filter) Matches(key []byte) bool {
	if key == nil {
		return false
	}
	switch f.Kind {
	case FilterAll:
		return f.Value == ""
	case FilterExact:
		return f.Value == string(key)
	case FilterPrefix:
		return len(key) >= len(f.Value) && string(key[:len(f.Value)]) == f.Value
	case FilterPattern:
		return topic.Match(f.Value, key)
	}
	return false
}

// Within reports whether the topic pattern matches every key that the filter lets through: what a grant limited to that
// pattern admits.
func (f Filter) Within(pattern string) bool {
	switch f.Kind {
	case FilterAll:
		return f.Value == "" && topic.ContainsPrefix(pattern, "")
	case FilterExact:
		return topic.Match(pattern, []byte(f.Value))
	case FilterPrefix:
		return topic.ContainsPrefix(pattern, f.Value)
	case FilterPattern:
		return topic.Contains(pattern, f.Value)
	}
	return false
}

// Validate refuses a filter that no Subscribe carries.
func (f Filter) Validate() error {
	switch {
	case f.Kind < FilterExact || f.Kind > FilterPattern:
		return fmt.Errorf("filter of kind %d: %w", f.Kind, ErrValue)
	case len(f.Value) > batch.MaxKey:
		return fmt.Errorf("filter of %d bytes, at most %d: %w", len(f.Value), batch.MaxKey, ErrValue)
	case f.Kind == FilterPattern:
		return topic.Validate(f.Value)
	}
	return nil
}

// ValidateKeys refuses a filter that no List, Count or Watch carries: as Validate, but FilterAll without a value is one.
func (f Filter) ValidateKeys() error {
	if f == (Filter{}) {
		return nil
	}
	return f.Validate()
}

// String returns the filter as logs write it.
func (f Filter) String() string {
	switch f.Kind {
	case FilterAll:
		return "every key"
	case FilterExact:
		return fmt.Sprintf("key %.200q", f.Value)
	case FilterPrefix:
		return fmt.Sprintf("prefix %.200q", f.Value)
	case FilterPattern:
		return fmt.Sprintf("pattern %.200q", f.Value)
	}
	return fmt.Sprintf("filter of kind %d", f.Kind)
}

func filtersSize(filters []Filter) int {
	n := uvarintSize(uint64(len(filters)))
	for i := range filters {
		n += filterSize(&filters[i])
	}
	return n
}

func appendFilters(dst []byte, filters []Filter) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(filters)))
	for i := range filters {
		dst = appendFilter(dst, &filters[i])
	}
	return dst
}

// filters reads 1 to MaxFilters of them.
func (c *cursor) filters(into []Filter) []Filter {
	n := c.uvarint()
	if n == 0 || n > MaxFilters {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f := Filter{Kind: FilterKind(c.u8()), Value: c.string()}
		if c.err == nil && f.Validate() != nil {
			c.fail(ErrValue)
		}
		into = append(into, f)
	}
	return into
}

func filterSize(f *Filter) int { return 1 + stringSize(f.Value) }

func appendFilter(dst []byte, f *Filter) []byte {
	return appendString(append(dst, byte(f.Kind)), f.Value)
}

// keys reads the one filter that says which keys of a cache are meant.
func (c *cursor) keys() Filter {
	f := Filter{Kind: FilterKind(c.u8()), Value: c.string()}
	if c.err == nil && f.ValidateKeys() != nil {
		c.fail(ErrValue)
	}
	return f
}
