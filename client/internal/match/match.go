// SPDX-License-Identifier: Apache-2.0

// Package match finds those whose filter a key matches, among many filters: by the key itself, by its beginnings, and by
// trying each different pattern. It touches nothing and refuses nothing.
package match

import (
	"slices"

	"margay.dev/wire"
	"margay.dev/wire/topic"
)

// Index finds values by keys. Each value has one filter. The zero value is empty.
type Index[T comparable] struct {
	all      []T
	exact    map[string][]T
	prefixes []prefixes[T] // in order of their lengths
	patterns []pattern[T]
}

type prefixes[T any] struct {
	length int
	by     map[string][]T
}

type pattern[T any] struct {
	pattern string
	values  []T
}

// Add adds a value.
func (x *Index[T]) Add(f wire.Filter, v T) {
	switch f.Kind {
	case wire.FilterAll:
		x.all = append(x.all, v)
	case wire.FilterExact:
		if x.exact == nil {
			x.exact = map[string][]T{}
		}
		x.exact[f.Value] = append(x.exact[f.Value], v)
	case wire.FilterPrefix:
		i, ok := x.length(len(f.Value))
		if !ok {
			x.prefixes = slices.Insert(x.prefixes, i, prefixes[T]{length: len(f.Value), by: map[string][]T{}})
		}
		x.prefixes[i].by[f.Value] = append(x.prefixes[i].by[f.Value], v)
	case wire.FilterPattern:
		i := x.pattern(f.Value)
		if i < 0 {
			i = len(x.patterns)
			x.patterns = append(x.patterns, pattern[T]{pattern: f.Value})
		}
		x.patterns[i].values = append(x.patterns[i].values, v)
	}
}

// Remove takes a value out again.
func (x *Index[T]) Remove(f wire.Filter, v T) {
	switch f.Kind {
	case wire.FilterAll:
		x.all = without(x.all, v)
	case wire.FilterExact:
		if x.exact[f.Value] = without(x.exact[f.Value], v); len(x.exact[f.Value]) == 0 {
			delete(x.exact, f.Value)
		}
	case wire.FilterPrefix:
		i, ok := x.length(len(f.Value))
		if !ok {
			return
		}
		by := x.prefixes[i].by
		if by[f.Value] = without(by[f.Value], v); len(by[f.Value]) == 0 {
			delete(by, f.Value)
		}
		if len(by) == 0 {
			x.prefixes = slices.Delete(x.prefixes, i, i+1)
		}
	case wire.FilterPattern:
		i := x.pattern(f.Value)
		if i < 0 {
			return
		}
		if x.patterns[i].values = without(x.patterns[i].values, v); len(x.patterns[i].values) == 0 {
			x.patterns = slices.Delete(x.patterns, i, i+1)
		}
	}
}

// Each calls f with every value whose filter the key matches.
func (x *Index[T]) Each(key []byte, f func(v T)) {
	each(x.all, f)
	each(x.exact[string(key)], f)
	for i := range x.prefixes {
		p := &x.prefixes[i]
		if p.length > len(key) {
			break
		}
		each(p.by[string(key[:p.length])], f)
	}
	for i := range x.patterns {
		if topic.Match(x.patterns[i].pattern, key) {
			each(x.patterns[i].values, f)
		}
	}
}

func (x *Index[T]) length(n int) (int, bool) {
	return slices.BinarySearchFunc(x.prefixes, n, func(p prefixes[T], n int) int { return p.length - n })
}

func (x *Index[T]) pattern(p string) int {
	return slices.IndexFunc(x.patterns, func(other pattern[T]) bool { return other.pattern == p })
}

func each[T any](values []T, f func(v T)) {
	for _, v := range values {
		f(v)
	}
}

// without takes one value out; the order of the others does not matter.
func without[T comparable](values []T, v T) []T {
	i := slices.Index(values, v)
	if i < 0 {
		return values
	}
	last := len(values) - 1
	values[i] = values[last]
	clear(values[last:])
	return values[:last]
}
