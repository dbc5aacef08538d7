// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
)

// pendingKey is what one pending record says of its key.
type pendingKey struct {
	key   string
	entry keyindex.Entry
	gone  bool // a tombstone
	moved bool // carried: the same record, in another place
	prev  int  // number of the pending record that this one hides; -1 for none
}

func (p *pendingKey) apply(x *keyindex.Index) {
	if p.gone {
		x.Remove(p.key, p.entry.Offset)
		return
	}
	x.Set(p.key, p.entry)
}

// pendingKeys lies over the index: what was appended and may still be cut off. Only the ordered append consults it.
type pendingKeys struct {
	list   []pendingKey // by sequence
	first  int          // number of list[0]
	newest map[string]int
}

func (t *pendingKeys) len() int { return len(t.list) }

// add takes a batch that was appended.
func (t *pendingKeys) add(b batch.Batch) {
	if t.newest == nil {
		t.newest = map[string]int{}
	}
	moved := b.IsCarried()
	// It was walked when it came: there is no error to be had.
	_ = keyindex.Each(b, func(m *batch.Meta, e keyindex.Entry) {
		p := pendingKey{key: string(m.Key), entry: e, gone: m.Null, moved: moved, prev: -1}
		if !moved {
			if was, ok := t.newest[p.key]; ok {
				p.prev = was
			}
			t.newest[p.key] = t.first + len(t.list)
		}
		t.list = append(t.list, p)
	})
}

// get returns the newest pending word on a key.
func (t *pendingKeys) get(key []byte) (p *pendingKey, ok bool) {
	i, ok := t.newest[string(key)]
	if !ok {
		return nil, false
	}
	return &t.list[i-t.first], true
}

// commit hands over what lies below the mark, until the next change.
func (t *pendingKeys) commit(mark uint64) []pendingKey {
	n := 0
	for n < len(t.list) && t.list[n].entry.Sequence < mark {
		p := &t.list[n]
		if t.newest[p.key] == t.first+n && !p.moved {
			delete(t.newest, p.key)
		}
		n++
	}
	done := t.list[:n]
	t.list = t.list[n:]
	t.first += n
	if len(t.list) == 0 {
		t.list = done[:0] // until the next add nobody writes there
	}
	return done
}

// cut takes back what the batches from sequence at on said, newest first.
func (t *pendingKeys) cut(at uint64) {
	for n := len(t.list) - 1; n >= 0 && t.list[n].entry.Sequence >= at; n-- {
		p := &t.list[n]
		if p.prev >= t.first {
			t.newest[p.key] = p.prev
		} else { // there was none, or it is committed; a key that is carried has none pending
			delete(t.newest, p.key)
		}
		t.list[n] = pendingKey{}
		t.list = t.list[:n]
	}
}

// newestKey is what the shard holds of a key, pending or not.
type newestKey struct {
	keyindex.Entry
	gone    bool
	pending bool
}

// newest returns the last word on a key. It is known also when that is a pending tombstone: an answer that rests on it
// waits for it.
func (k *keys) newest(key []byte) (n newestKey, known bool) {
	if p, ok := k.pending.get(key); ok {
		return newestKey{Entry: p.entry, gone: p.gone, pending: true}, true
	}
	if e, ok := k.index.Get(key); ok {
		return newestKey{Entry: e}, true
	}
	return newestKey{}, false
}

// version is the key's at a time, in a log that begins at start: the same before and after the index was built anew from
// what the log keeps.
func (n *newestKey) version(start LogStart, at int64) uint64 {
	if n.gone || !start.holds(n.Entry) || expiredAt(n.Entry, at) {
		return 0
	}
	return n.Offset + 1
}
