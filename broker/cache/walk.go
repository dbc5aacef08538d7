// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"strings"

	"margay.dev/storage/keyindex"
	"margay.dev/wire"
)

// walk goes through the keys that a filter lets through, in their order, in pages: the index's lock is held for no more
// than a page, and never while anything is read from the log.
type walk struct {
	filter   wire.Filter
	prefix   string // of every key that the filter lets through
	all      bool   // every key with the prefix is let through
	after    string
	hasAfter bool
}

func walkOf(f wire.Filter) *walk {
	w := &walk{filter: f}
	w.prefix, w.all = prefixOf(f)
	return w
}

// prefixOf is what the keys that a filter lets through have in common, and whether all keys that have it are let through.
func prefixOf(f wire.Filter) (prefix string, all bool) {
	switch f.Kind {
	case wire.FilterAll:
		return "", true
	case wire.FilterPrefix:
		return f.Value, true
	case wire.FilterExact:
	case wire.FilterPattern:
		if i := strings.IndexAny(f.Value, "+#"); i >= 0 {
			prefix = f.Value[:i]
			if f.Value[i] == '#' {
				prefix = strings.TrimSuffix(prefix, "/") // a/# lets a through too
			}
			return prefix, false
		}
	}
	return f.Value, false
}

// page calls each with the keys that are present among the next so many that it looks at, and says whether there may be
// more behind them.
func (w *walk) page(r *reading, looked int, each func(key string, e keyindex.Entry)) (more bool) {
	if w.filter.Kind == wire.FilterExact || w.filter.Kind == wire.FilterPattern && w.prefix == w.filter.Value {
		if w.hasAfter && w.after >= w.filter.Value {
			return false
		}
		if e, ok := r.lookup([]byte(w.filter.Value)); ok {
			each(w.filter.Value, e)
		}
		return false
	}
	r.keys.Ascend(w.prefix, w.after, w.hasAfter, func(key string, e keyindex.Entry) bool {
		if looked == 0 {
			more = true
			return false
		}
		looked--
		w.after, w.hasAfter = key, true
		if (w.all || w.filter.Matches([]byte(key))) && !r.absent.is(&e) {
			each(key, e)
		}
		return true
	})
	return more
}
