// SPDX-License-Identifier: Apache-2.0

package keyindex

import "strings"

// Ascend calls f with the keys that begin with prefix, in byte order, until f returns false; with hasAfter only those
// behind the key after. It holds a lock that the writer waits for, so f must be quick and must not call the index: who
// wants many keys takes a page, and the next one after its last key.
func (x *Index) Ascend(prefix, after string, hasAfter bool, f func(key string, e Entry) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	from := prefix
	if hasAfter && after >= prefix {
		from = after
	}
	x.ordered.Ascend(&item{key: from}, func(it *item) bool {
		if hasAfter && it.key == after {
			return true
		}
		return strings.HasPrefix(it.key, prefix) && f(it.key, it.Entry)
	})
}

// Due calls f with the entries that have expired at this time, the earliest first, at most limit of them, until f returns
// false. They stay until a tombstone removes them. The rule for f is that of Ascend.
func (x *Index) Due(now int64, limit int, f func(key string, e Entry) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.due.Scan(func(it *item) bool {
		if it.Until > now || limit <= 0 {
			return false
		}
		limit--
		return f(it.key, it.Entry)
	})
}

// NextDue is when the next entry expires, 0 when none does.
func (x *Index) NextDue() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if it, ok := x.due.Min(); ok {
		return it.Until
	}
	return 0
}
