// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"maps"
	"slices"
)

// table is a map in two layers: what the log holds of a key for good, and what lies behind that and may still be cut off.
// Whoever appends consults the newest; whoever reads, the committed one.
type table[K cmp.Ordered, V any] struct {
	rows    map[K][]version[V] // ascending by sequence, never empty; the first is the newest committed, if there is one
	pending []change[K]        // of versions that are not committed, ascending
}

// version is the value that one batch gave to a key.
type version[V any] struct {
	sequence uint64 // of the batch
	value    V
	gone     bool // the batch took the key away
}

type change[K cmp.Ordered] struct {
	sequence uint64
	key      K
}

func newTable[K cmp.Ordered, V any]() table[K, V] { return table[K, V]{rows: map[K][]version[V]{}} }

// len counts the keys, those too whose removal is not committed.
func (t *table[K, V]) len() int { return len(t.rows) }

// newest returns what the last batch said of the key. There is a version also when it was taken away and that is not
// committed: an answer that rests on it waits for its sequence.
func (t *table[K, V]) newest(key K) (v version[V], known bool) {
	row := t.rows[key]
	if len(row) == 0 {
		return version[V]{}, false
	}
	return row[len(row)-1], true
}

// get returns the newest value of a key that has not been taken away.
func (t *table[K, V]) get(key K) (v version[V], ok bool) {
	v, known := t.newest(key)
	return v, known && !v.gone
}

// put notes what the batch of this sequence says of a key.
func (t *table[K, V]) put(sequence uint64, key K, value V) {
	t.add(key, version[V]{sequence: sequence, value: value})
}

// remove notes that the batch of this sequence takes away a key that is there. What it was stays known until that is
// committed.
func (t *table[K, V]) remove(sequence uint64, key K, was V) {
	t.add(key, version[V]{sequence: sequence, value: was, gone: true})
}

func (t *table[K, V]) add(key K, v version[V]) {
	t.rows[key] = append(t.rows[key], v)
	t.pending = append(t.pending, change[K]{v.sequence, key})
}

// commit makes what lies below mark the committed layer.
func (t *table[K, V]) commit(mark uint64) {
	n := 0
	for n < len(t.pending) && t.pending[n].sequence < mark {
		key := t.pending[n].key
		n++
		row := t.rows[key]
		for len(row) > 1 && row[1].sequence < mark {
			row = row[1:]
		}
		t.settle(key, row)
	}
	t.pending = slices.Delete(t.pending, 0, n)
}

// cut forgets what the batches from sequence at on said.
func (t *table[K, V]) cut(at uint64) {
	n := len(t.pending)
	for n > 0 && t.pending[n-1].sequence >= at {
		n--
		key := t.pending[n].key
		if row := t.rows[key]; len(row) > 0 {
			t.settle(key, row[:len(row)-1])
		}
	}
	t.pending = t.pending[:n]
}

// settle keeps a row, unless nothing of it is left. A removal stands alone only when it is committed.
func (t *table[K, V]) settle(key K, row []version[V]) {
	if len(row) == 0 || len(row) == 1 && row[0].gone {
		delete(t.rows, key)
		return
	}
	t.rows[key] = row
}

// keys lists the keys in order.
func (t *table[K, V]) keys() []K { return slices.Sorted(maps.Keys(t.rows)) }

// committed returns the value that readers see of a key.
func (t *table[K, V]) committed(key K, mark uint64) (value V, ok bool) {
	for _, v := range slices.Backward(t.rows[key]) {
		if v.sequence < mark {
			return v.value, !v.gone
		}
	}
	return value, false
}
