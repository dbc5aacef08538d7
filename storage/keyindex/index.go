// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"sync"

	"github.com/tidwall/btree"
)

// Index is the ordered index of the keys of one shard: one goroutine writes, any number read meanwhile.
//
// A reader that tells others how far the index has got asks AsOf first and reads then: what it reads is at least as new.
type Index struct {
	mu       sync.RWMutex
	items    table
	ordered  *btree.BTreeG[*item] // every item
	due      *btree.BTreeG[*item] // the items that expire
	sequence uint64
	offset   uint64
	keyBytes int64
	live     int64
	shared   int // snapshots that are still to be written: their items must not change
}

// degree of the trees: nodes of 31 to 63 items, which costs least memory for each key and is nowhere slower.
const degree = 32

// New returns an empty index.
func New() *Index {
	o := btree.Options{NoLocks: true, Degree: degree}
	return &Index{items: newTable(), ordered: btree.NewBTreeGOptions(byKey, o), due: btree.NewBTreeGOptions(byDue, o)}
}

// Get returns the entry of a key. It says nothing about time: an entry that is due is there until it is removed.
func (x *Index) Get(key []byte) (Entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	it := x.items.getBytes(key)
	if it == nil {
		return Entry{}, false
	}
	return it.Entry, true
}

// Set lays an entry over what is known of the key, if its offset is higher, or the same and its sequence is higher. A key
// that was not there is kept as it is given, with all of the memory that it is a part of.
func (x *Index) Set(key string, e Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if it := x.items.get(key); it != nil {
		x.update(it, e)
		return
	}
	x.insert(key, e)
}

// Remove takes the key out if its entry is older than the tombstone at this offset.
func (x *Index) Remove(key string, offset uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeOlder(x.items.get(key), offset)
}

// SetAsOf says how far the index reflects the log: every batch below sequence, every record below offset. Apply does so by
// itself; this is for an index that begins where the log does, and for who calls Set and Remove.
func (x *Index) SetAsOf(sequence, offset uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sequence, x.offset = sequence, offset
}

// AsOf returns how far the index reflects the log, both exclusive.
func (x *Index) AsOf() (sequence, offset uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.sequence, x.offset
}

// Len is the number of keys.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.items.count
}

// LiveBytes is the sum of the sizes of all entries: what of the log is still needed.
func (x *Index) LiveBytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.live
}

func (x *Index) insert(key string, e Entry) {
	it := &item{key: key, Entry: e}
	x.items.add(it)
	x.ordered.Set(it)
	if it.Until != 0 {
		x.due.Set(it)
	}
	x.count(it, 1)
}

// count adds an item to the sums, or with -1 takes it off.
func (x *Index) count(it *item, times int64) {
	x.keyBytes += times * allocated(len(it.key))
	x.live += times * int64(it.Size)
}

func (x *Index) update(it *item, e Entry) {
	if !e.replaces(it.Entry) {
		return
	}
	x.live += int64(e.Size) - int64(it.Size)
	if it.Until != 0 && (it.Until != e.Until || x.shared > 0) {
		x.due.Delete(it)
	}
	queued := it.Until == e.Until && x.shared == 0
	if x.shared > 0 { // a snapshot holds this one
		fresh := &item{key: it.key}
		x.items.swap(it, fresh)
		it = fresh
		x.ordered.Set(it)
	}
	it.Entry = e
	if it.Until != 0 && !queued {
		x.due.Set(it)
	}
}

func (x *Index) removeOlder(it *item, offset uint64) {
	if it != nil && it.Offset < offset {
		x.remove(it)
	}
}

func (x *Index) remove(it *item) {
	x.items.remove(it)
	x.ordered.Delete(it)
	if it.Until != 0 {
		x.due.Delete(it)
	}
	x.count(it, -1)
}
