// SPDX-License-Identifier: Apache-2.0

// Package history judges what clients saw: it records each attempt, its answer and each record that a reader got, and
// names every promise those break; it holds data only, opens nothing, starts nothing, and refuses to guess where a
// history does not show enough.
package history

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// Shard names one shard of one log.
type Shard struct {
	Log    string
	Number uint32
}

// Digest stands for a record's key and value. Two attempts of one history must not share one, since it is how a record
// that was read is matched with the attempt that wrote it: give every value a counter.
type Digest [16]byte

// Sum digests a record. A nil value (a tombstone) and an empty one differ, so do a nil and an empty key.
func Sum(key, value []byte) Digest {
	h := sha256.New()
	for _, part := range [][]byte{key, value} {
		size := [8]byte{}
		if part == nil {
			size[7] = 0xff // no length reaches this far
		} else {
			binary.LittleEndian.PutUint64(size[:], uint64(len(part)))
		}
		h.Write(size[:])
		h.Write(part)
	}
	var d Digest
	copy(d[:], h.Sum(nil))
	return d
}

// Outcome is what a client was told of an attempt.
type Outcome uint8

// Unknown is the zero value: an attempt that was never answered may have been applied, as one answered with the class
// unknown may.
const (
	Unknown Outcome = iota
	Acked
	Refused
	Fatal
)

var outcomes = [...]string{Unknown: "unknown", Acked: "acked", Refused: "refused", Fatal: "fatal"}

func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return "invalid"
}

// Attempt is one thing that a client tried to store.
type Attempt struct {
	Client string // who, for messages
	Op     string // what, for messages: "publish", "put", "push"
	// Producer groups attempts that began in the order in which they must be stored, per shard. Leave it empty where
	// several goroutines publish at once: their attempts have no order beyond what the answers show.
	Producer string
	Key      string // for messages and to compare with what readers got; empty when there is none
	Digest   Digest
	// MayRepeat says that the client retried without idempotence, so that one attempt may be stored more than once.
	MayRepeat bool
	// If makes the attempt conditional: Version is what the key was to have, one above the offset of its newest record, 0
	// for none.
	If *Version
	// Tombstone says that the record leaves its key without a version.
	Tombstone bool
}

// Version of a key.
type Version uint64

// Answer is how an attempt ended.
type Answer struct {
	Outcome Outcome
	// The rest is read for Acked only.
	Shard      Shard
	Offset     uint64
	Generation uint64 // 0: not known
	Duplicate  bool   // the broker said that it had the record already, at Offset
	// Weak says that the answer promised less than the faults of this run ask for (not flushed, not committed): the
	// record may be lost, and its offset given to another.
	Weak bool
	// Somewhere says that the answer promised the record without saying where; Shard is read, Offset is not.
	Somewhere bool
	// Have is the version that the key was said to have, of a conditional attempt that was refused for it.
	Have *Version
}

// Record is what a reader got.
type Record struct {
	Shard  Shard
	Offset uint64
	Key    string
	Digest Digest
	// Generation at which it was appended; 0: not known. It tells apart what a loss that was allowed has given an offset
	// to, before and after.
	Generation uint64
}

// ID names an attempt of one Recorder.
type ID int

// Recorder collects a history. Its methods may be called from many goroutines; what happens before the call of one
// method and after the return of another is kept in that order, and concurrent calls in some order.
type Recorder struct {
	mu       sync.Mutex
	moment   int
	attempts []attempt
	readers  []*reader // in order of first mention, so that two checks of one history report alike
	byName   map[string]*reader
	audits   []audit
	cuts     []cut
	cursors  []cursorEvent
	starts   []startEvent
}

type attempt struct {
	Attempt
	Answer
	began, ended int // moments; ended is 0 while there is no answer
}

type reader struct {
	name     string
	filtered bool
	events   []event
}

type event struct {
	kind   eventKind
	record Record // of a start or gap: its shard and offset
	to     uint64 // of a gap: where it ends, exclusive
}

type eventKind uint8

const (
	eventRead eventKind = iota
	eventStart
	eventGap
)

type audit struct {
	reader   string
	shard    Shard
	from, to uint64
}

// Begin records an attempt. Call it before the request leaves.
func (r *Recorder) Begin(a Attempt) ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.attempts = append(r.attempts, attempt{Attempt: a, began: r.moment})
	return ID(len(r.attempts) - 1)
}

// End records the answer of an attempt. Call it after the answer arrived. An attempt without End counts as unknown.
func (r *Recorder) End(id ID, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.attempts[id].Answer = a
	r.attempts[id].ended = r.moment
}

// Start says that a reader's subscription to a shard begins at offset: its first record there must be that one. Said
// again, after a reconnection, it must be where the reader was. A reader that seeks takes another name.
func (r *Recorder) Start(name string, s Shard, offset uint64) {
	r.add(name, event{kind: eventStart, record: Record{Shard: s, Offset: offset}})
}

// Read records what a reader got, in the order in which it got it.
func (r *Recorder) Read(name string, rec Record) {
	r.add(name, event{kind: eventRead, record: rec})
}

// Gap records that a reader was told that it does not get the offsets from up to to, exclusive.
func (r *Recorder) Gap(name string, s Shard, from, to uint64) {
	r.add(name, event{kind: eventGap, record: Record{Shard: s, Offset: from}, to: to})
}

// Filtered says that a reader asked for some records only: offsets that it does not get are no gap.
func (r *Recorder) Filtered(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reader(name).filtered = true
}

// Audit says that a reader read all that a shard held, from the first offset kept up to its end, exclusive, after the
// last attempt was answered and the last fault healed. Only an audit can show that a record is lost.
func (r *Recorder) Audit(name string, s Shard, from, to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reader(name)
	r.audits = append(r.audits, audit{reader: name, shard: s, from: from, to: to})
}

// Counts returns how many attempts ended in each outcome and how many records were read: a run that acknowledged
// nothing proves nothing.
func (r *Recorder) Counts() (byOutcome map[Outcome]int, reads int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byOutcome = make(map[Outcome]int, len(outcomes))
	for i := range r.attempts {
		byOutcome[r.attempts[i].Outcome]++
	}
	for _, rd := range r.readers {
		for _, e := range rd.events {
			if e.kind == eventRead {
				reads++
			}
		}
	}
	return byOutcome, reads
}

// Check returns every violation that the history shows so far, none if it keeps every promise.
func (r *Recorder) Check() []Violation {
	r.mu.Lock()
	c := checker{
		attempts: slices.Clone(r.attempts), audits: slices.Clone(r.audits), cuts: slices.Clone(r.cuts),
		cursors: slices.Clone(r.cursors), starts: slices.Clone(r.starts),
	}
	for _, rd := range r.readers {
		c.readers = append(c.readers, &reader{name: rd.name, filtered: rd.filtered, events: slices.Clip(rd.events)})
	}
	r.mu.Unlock()
	return c.check()
}

func (r *Recorder) add(name string, e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rd := r.reader(name)
	rd.events = append(rd.events, e)
}

func (r *Recorder) reader(name string) *reader {
	rd, ok := r.byName[name]
	if !ok {
		rd = &reader{name: name}
		if r.byName == nil {
			r.byName = make(map[string]*reader)
		}
		r.byName[name] = rd
		r.readers = append(r.readers, rd)
	}
	return rd
}
