// SPDX-License-Identifier: Apache-2.0

package keyindex

import "hash/maphash"

// table finds an item by its key. A map of the language would do, at 30 to 60 bytes a key: it keeps the string a second
// time and doubles. This one keeps a pointer and half of the hash, and grows by a quarter, which is cheap since the keys
// need not be read again. It is cut into parts so that the writer never stops to move all of them.
type table struct {
	seed  maphash.Seed
	parts [parts]part
	count int
	slots int // of all parts
}

// part is a hash table with linear probing.
type part struct {
	hashes []uint32 // 0 = nothing here
	items  []*item
	count  int
}

const (
	partBits  = 6
	parts     = 1 << partBits
	leastRoom = 8
	slotBytes = 12
)

func newTable() table { return table{seed: maphash.MakeSeed()} }

func (t *table) at(key string) (*part, uint32)      { return t.place(maphash.String(t.seed, key)) }
func (t *table) atBytes(key []byte) (*part, uint32) { return t.place(maphash.Bytes(t.seed, key)) }

// place uses the upper bits for the part and the lower ones within it. A hash of 0 is moved to 1: it marks what is empty.
func (t *table) place(h uint64) (*part, uint32) {
	return &t.parts[h>>(64-partBits)], max(1, uint32(h))
}

func (t *table) get(key string) *item {
	p, h := t.at(key)
	for i := p.home(h); i < len(p.hashes); i = p.next(i) {
		if p.hashes[i] == 0 {
			return nil
		}
		if p.hashes[i] == h && p.items[i].key == key {
			return p.items[i]
		}
	}
	return nil
}

func (t *table) getBytes(key []byte) *item {
	p, h := t.atBytes(key)
	for i := p.home(h); i < len(p.hashes); i = p.next(i) {
		if p.hashes[i] == 0 {
			return nil
		}
		if p.hashes[i] == h && p.items[i].key == string(key) {
			return p.items[i]
		}
	}
	return nil
}

// add puts in an item whose key is not there.
func (t *table) add(it *item) {
	p, h := t.at(it.key)
	if p.count >= len(p.hashes)*4/5 {
		t.slots += p.grow()
	}
	p.put(h, it)
	p.count++
	t.count++
}

// swap replaces an item by another of the same key.
func (t *table) swap(old, with *item) {
	p, h := t.at(old.key)
	p.items[p.find(h, old)] = with
}

func (t *table) remove(it *item) {
	p, h := t.at(it.key)
	p.remove(p.find(h, it))
	p.count--
	t.count--
	if len(p.hashes) > leastRoom && p.count < len(p.hashes)/3 {
		t.slots += p.resize(len(p.hashes) / 2)
	}
}

func (p *part) home(h uint32) int { return int(uint64(h) * uint64(len(p.hashes)) >> 32) }

func (p *part) next(i int) int {
	if i++; i == len(p.hashes) {
		return 0
	}
	return i
}

// distance is how many steps lead from one slot to another.
func (p *part) distance(from, to int) int {
	if to < from {
		to += len(p.hashes)
	}
	return to - from
}

func (p *part) find(h uint32, it *item) int {
	i := p.home(h)
	for p.items[i] != it {
		i = p.next(i)
	}
	return i
}

func (p *part) put(h uint32, it *item) {
	i := p.home(h)
	for p.hashes[i] != 0 {
		i = p.next(i)
	}
	p.hashes[i], p.items[i] = h, it
}

// remove empties a slot and moves up what would no longer be found behind the hole.
func (p *part) remove(hole int) {
	for i := p.next(hole); p.hashes[i] != 0; i = p.next(i) {
		if p.distance(p.home(p.hashes[i]), i) >= p.distance(hole, i) {
			p.hashes[hole], p.items[hole] = p.hashes[i], p.items[i]
			hole = i
		}
	}
	p.hashes[hole], p.items[hole] = 0, nil
}

func (p *part) grow() int { return p.resize(max(leastRoom, len(p.hashes)+len(p.hashes)/4)) }

// resize moves everything into a table of n slots and returns how many were added.
func (p *part) resize(n int) int {
	old := *p
	p.hashes, p.items = make([]uint32, n), make([]*item, n)
	for i, h := range old.hashes {
		if h != 0 {
			p.put(h, old.items[i])
		}
	}
	return n - len(old.hashes)
}
