// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"bytes"
	"slices"
	"strings"

	"margay.dev/wire"
)

// Index finds whose filters match a key, in time that depends on the key and not on how many filters there are.
type Index[T comparable] struct {
	all      []T
	exact    map[string][]T
	prefixes map[string][]T
	lengths  []int       // of the prefixes, ascending
	ofLength map[int]int // how many prefixes there are of each length
	topics   *topic[T]
}

// Remove takes filters out that were added for one.
func (x *Index[T]) Remove(g T, filters []wire.Filter) {
	for _, f := range filters {
		switch f.Kind {
		case wire.FilterAll:
			x.all = slices.DeleteFunc(x.all, func(y T) bool { return y == g })
		case wire.FilterExact:
			without(x.exact, f.Value, g)
		case wire.FilterPrefix:
			if without(x.prefixes, f.Value, g) {
				continue
			}
			n := len(f.Value)
			if x.ofLength[n]--; x.ofLength[n] == 0 {
				delete(x.ofLength, n)
				if i, found := slices.BinarySearch(x.lengths, n); found {
					x.lengths = slices.Delete(x.lengths, i, i+1)
				}
			}
		case wire.FilterPattern:
			x.topics.remove(f.Value, g)
		}
	}
}

// without takes g out of the list at key, and says whether others are left in it.
func without[T comparable](m map[string][]T, key string, g T) (others bool) {
	left := slices.DeleteFunc(m[key], func(x T) bool { return x == g })
	if len(left) > 0 {
		m[key] = left
		return true
	}
	delete(m, key)
	return false
}

type topic[T comparable] struct {
	levels map[string]*topic[T]
	plus   *topic[T]
	rest   []T // patterns that end in # here
	here   []T
}

// NewIndex makes an empty one.
func NewIndex[T comparable]() *Index[T] {
	return &Index[T]{exact: map[string][]T{}, prefixes: map[string][]T{}, ofLength: map[int]int{}, topics: &topic[T]{}}
}

// Add adds filters of one; each once.
func (x *Index[T]) Add(g T, filters []wire.Filter) {
	for _, f := range filters {
		switch f.Kind {
		case wire.FilterAll:
			x.all = append(x.all, g)
		case wire.FilterExact:
			x.exact[f.Value] = append(x.exact[f.Value], g)
		case wire.FilterPrefix:
			n := len(f.Value)
			if len(x.prefixes[f.Value]) == 0 {
				if x.ofLength[n]++; x.ofLength[n] == 1 {
					i, _ := slices.BinarySearch(x.lengths, n)
					x.lengths = slices.Insert(x.lengths, i, n)
				}
			}
			x.prefixes[f.Value] = append(x.prefixes[f.Value], g)
		case wire.FilterPattern:
			x.topics.add(f.Value, g)
		}
	}
}

func (t *topic[T]) add(pattern string, g T) {
	for level := range strings.SplitSeq(pattern, "/") {
		switch level {
		case "#":
			t.rest = append(t.rest, g)
			return
		case "+":
			if t.plus == nil {
				t.plus = &topic[T]{}
			}
			t = t.plus
		default:
			if t.levels == nil {
				t.levels = map[string]*topic[T]{}
			}
			next := t.levels[level]
			if next == nil {
				next = &topic[T]{}
				t.levels[level] = next
			}
			t = next
		}
	}
	t.here = append(t.here, g)
}

// remove takes g out and says whether nothing is left here.
func (t *topic[T]) remove(pattern string, g T) (empty bool) {
	is := func(x T) bool { return x == g }
	level, rest, more := strings.Cut(pattern, "/")
	if level == "#" {
		t.rest = slices.DeleteFunc(t.rest, is)
		return t.idle()
	}
	next := t.levels[level]
	if level == "+" {
		next = t.plus
	}
	if next == nil {
		return t.idle()
	}
	if more {
		empty = next.remove(rest, g)
	} else {
		next.here = slices.DeleteFunc(next.here, is)
		empty = next.idle()
	}
	if empty && level == "+" {
		t.plus = nil
	} else if empty {
		delete(t.levels, level)
	}
	return t.idle()
}

func (t *topic[T]) idle() bool {
	return len(t.levels) == 0 && t.plus == nil && len(t.rest) == 0 && len(t.here) == 0
}

// Match calls hit for each whose filters match key, for some more than once.
func (x *Index[T]) Match(key []byte, hit func(T)) {
	for _, g := range x.all {
		hit(g)
	}
	for _, g := range x.exact[string(key)] {
		hit(g)
	}
	for _, n := range x.lengths {
		if n > len(key) {
			break
		}
		for _, g := range x.prefixes[string(key[:n])] {
			hit(g)
		}
	}
	x.topics.match(key, hit)
}

func (t *topic[T]) match(key []byte, hit func(T)) {
	for _, g := range t.rest {
		hit(g)
	}
	level, rest, more := bytes.Cut(key, []byte{'/'})
	for _, next := range [2]*topic[T]{t.levels[string(level)], t.plus} {
		if next == nil {
			continue
		}
		if more {
			next.match(rest, hit)
			continue
		}
		for _, g := range next.here {
			hit(g)
		}
		for _, g := range next.rest { // a/# stands for a too
			hit(g)
		}
	}
}
