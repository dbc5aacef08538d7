// SPDX-License-Identifier: Apache-2.0

package cache

import "fmt"

// ChangeKind is what became of a key.
type ChangeKind uint8

const (
	// Value is a value that the key got.
	Value ChangeKind = iota + 1
	// Deleted says that somebody took it away.
	Deleted
	// Expired says that its time was over.
	Expired
)

func (k ChangeKind) String() string {
	switch k {
	case Value:
		return "value"
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	}
	return "invalid"
}

// Change is one change of one key, as somebody saw it.
type Change struct {
	Shard   uint32
	Version uint64
	Key     string
	Kind    ChangeKind
	Value   string
	// Expires is the deadline of the value, 0 for none; nil when it was not told.
	Expires *int64
	// Skipped is how many changes of the key its watcher was told that it does not get, between the last one and this.
	Skipped uint64
	// NotAfter is a time, by the clock that decides on expiry, that had not passed when this was seen; 0 stands for not known.
	NotAfter int64
}

func (c *Change) String() string {
	return fmt.Sprintf("%s of %q at version %d of shard %d: %s", c.Kind, c.Key, c.Version, c.Shard, short(c.Value))
}

// Watcher records what one watch was told. What it is told of one shard must come in the order in which it was told it.
type Watcher struct {
	r         *Recorder
	name      string
	match     func(key string) bool
	conflates bool
	events    []event
}

type eventKind uint8

const (
	eventBegin eventKind = iota
	eventReady
	eventEntry
	eventComplete
	eventChange
	eventUpto
)

type event struct {
	kind     eventKind
	shard    uint32
	snapshot bool // of a begin
	from     *uint64
	upto     uint64
	moment   int
	change   Change
}

// Watch makes a watcher of the keys that match.
func (r *Recorder) Watch(name string, match func(key string) bool) *Watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Watcher{r: r, name: name, match: match}
	r.watchers = append(r.watchers, w)
	return w
}

// Conflates says that the watcher may be told the newest of several changes of a key, and how many it does not get.
func (w *Watcher) Conflates() *Watcher {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.conflates = true
	return w
}

func (w *Watcher) add(e event) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.moment++
	e.moment = w.r.moment
	w.events = append(w.events, e)
}

// Begin says that the watch of a shard begins, or begins again: everything from here on replaces what it was told of the
// shard. With a snapshot, entries come first. From is the offset from which on every change is to come, nil when the
// watch was not told. Call it before the request leaves, and Ready when the answer has come.
func (w *Watcher) Begin(shard uint32, snapshot bool, from *uint64) {
	w.add(event{kind: eventBegin, shard: shard, snapshot: snapshot, from: from})
}

// Ready says that the watch of a shard was said to have begun.
func (w *Watcher) Ready(shard uint32) { w.add(event{kind: eventReady, shard: shard}) }

// Entry records an entry of a snapshot.
func (w *Watcher) Entry(c Change) { w.add(event{kind: eventEntry, shard: c.Shard, change: c}) }

// Complete records that the snapshot of a shard was said to be complete.
func (w *Watcher) Complete(shard uint32) { w.add(event{kind: eventComplete, shard: shard}) }

// Change records a change.
func (w *Watcher) Change(c Change) { w.add(event{kind: eventChange, shard: c.Shard, change: c}) }

// Upto says that everything of a shard that lies below an offset must have been told.
func (w *Watcher) Upto(shard uint32, offset uint64) {
	w.add(event{kind: eventUpto, shard: shard, upto: offset})
}

// Store is what one shard of the cache was said to hold, as of an offset, exclusive. Entries are its keys that match, all of
// them. NotAfter is a time that had not passed when the answer had come, 0 for not known.
type Store struct {
	Shard    uint32
	AsOf     uint64
	Match    func(key string) bool
	Entries  []Change
	NotAfter int64
}

type store struct{ Store }

// Store records what the cache holds: every watch that was told as much comes to the same state.
func (r *Recorder) Store(s Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.stores = append(r.stores, store{s})
}
