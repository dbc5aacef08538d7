// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"sync"
)

// Tag names a record of a Ledger: the nth of a producer, which counts them from 1 in the order in which it publishes
// them. A tag always goes to the same shard: give it a key that follows from it.
type Tag struct {
	Producer uint32
	N        uint64
}

func (t Tag) String() string { return fmt.Sprintf("record %d of producer %d", t.N, t.Producer) }

// Ledger judges a history while it grows, in memory that does not grow with it: for runs of hours, where a Recorder would
// hold more than the system under test. One reader, the auditor, reads everything; what is acknowledged and what the
// auditor gets are held until they have met, and nothing behind that. What no auditor can get (retention has passed it)
// is counted, not judged. Its methods may be called from many goroutines.
type Ledger struct {
	mu     sync.Mutex
	begun  map[uint32]uint64 // by producer: the highest n
	shards map[Shard]*account
	early  map[Tag]place   // read before it was answered
	denied map[Tag]Outcome // answered, and not with a place: few, or the run proves nothing
	counts Counts
	found  []Violation
}

// Counts says how much a ledger has seen.
type Counts struct {
	Begun, Acked, Refused, Unknown uint64
	Audited, Read                  uint64 // records of the auditor, and of all other readers
	Unseen                         uint64 // acknowledged, and passed by retention before the auditor came
	Lost                           uint64 // to readers, as they were told
	Violations                     uint64
}

// account is what is open in one shard.
type account struct {
	next   uint64 // of the auditor
	began  bool
	acked  map[uint64]Tag    // by offset: not audited yet
	last   map[uint32]uint64 // by producer: the highest n that was audited
	placed map[uint32]answered
	gaps   [][2]uint64 // the newest that the auditor was told of
	recent map[uint64]seen
	ring   []uint64 // the offsets of recent, in order of age
}

type answered struct{ n, offset, generation uint64 }

type seen struct {
	Tag

	sum uint32
}

const (
	keptViolations = 100     // beyond them they are counted only
	keptGaps       = 64      // that an answer under way may still be about
	keptPlaces     = 1 << 14 // per shard, for readers to agree with
)

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{begun: map[uint32]uint64{}, shards: map[Shard]*account{}, early: map[Tag]place{}, denied: map[Tag]Outcome{}}
}

func (l *Ledger) account(s Shard) *account {
	a := l.shards[s]
	if a == nil {
		a = &account{acked: map[uint64]Tag{}, last: map[uint32]uint64{}, placed: map[uint32]answered{}, recent: map[uint64]seen{}}
		l.shards[s] = a
	}
	return a
}

func (l *Ledger) report(k Kind, s Shard, offset uint64, format string, args ...any) {
	l.counts.Violations++
	if len(l.found) < keptViolations {
		l.found = append(l.found, Violation{Kind: k, Shard: s, Offset: offset, Detail: fmt.Sprintf(format, args...)})
	}
}

// Begin says that a producer publishes its next record.
func (l *Ledger) Begin(t Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun[t.Producer] = max(l.begun[t.Producer], t.N)
	l.counts.Begun++
}

// End says how that ended.
func (l *Ledger) End(t Tag, a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read, early := l.early[t]
	delete(l.early, t)
	switch a.Outcome {
	case Unknown:
		l.counts.Unknown++
		if !early {
			l.denied[t] = Unknown
		}
	case Refused, Fatal:
		l.counts.Refused++
		if early {
			l.report(Stored, read.shard, read.offset, "%s was read, and answered %s", t, a.Outcome)
		}
		l.denied[t] = a.Outcome
	case Acked:
		l.counts.Acked++
		l.acked(t, a, read, early)
	}
}

func (l *Ledger) acked(t Tag, a Answer, read place, early bool) {
	s := l.account(a.Shard)
	if p := s.placed[t.Producer]; !a.Duplicate {
		if p.n > t.N && p.offset < a.Offset || p.n < t.N && p.n > 0 && p.offset >= a.Offset {
			l.report(ProducerOrder, a.Shard, a.Offset, "%s is acknowledged there, its record %d at %d", t, p.n, p.offset)
		}
		if p.n < t.N {
			if a.Generation < p.generation {
				l.report(GenerationOrder, a.Shard, a.Offset, "%s is acknowledged at generation %d, an earlier one at %d", t, a.Generation, p.generation)
			}
			s.placed[t.Producer] = answered{t.N, a.Offset, a.Generation}
		}
	}
	at := place{a.Shard, a.Offset}
	switch {
	case early && read == at:
	case early:
		l.report(Altered, a.Shard, a.Offset, "%s is acknowledged there, and was read at %d", t, read.offset)
	case !s.began || a.Offset >= s.next:
		if other, ok := s.acked[a.Offset]; ok {
			l.report(Clash, a.Shard, a.Offset, "%s and %s are acknowledged there", other, t)
		}
		s.acked[a.Offset] = t
	case within(s.gaps, a.Offset):
		l.counts.Unseen++
	default:
		l.report(Lost, a.Shard, a.Offset, "%s is acknowledged there, and the auditor got something else", t)
	}
}

func within(gaps [][2]uint64, offset uint64) bool {
	for _, g := range gaps {
		if g[0] <= offset && offset < g[1] {
			return true
		}
	}
	return false
}

// Audit says that the auditor got a record. sum stands for its bytes.
func (l *Ledger) Audit(s Shard, offset uint64, t Tag, sum uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Audited++
	a := l.account(s)
	if a.began && offset != a.next {
		kind := Skipped
		if offset < a.next {
			kind = Repeated
		}
		l.report(kind, s, offset, "the auditor was at %d", a.next)
	}
	a.next, a.began = offset+1, true
	if t.N > l.begun[t.Producer] || t.N == 0 {
		l.report(Phantom, s, offset, "%s was never published", t)
		return
	}
	switch was := a.last[t.Producer]; {
	case t.N == was:
		l.report(Twice, s, offset, "%s is stored again", t)
	case t.N < was:
		l.report(ProducerOrder, s, offset, "%s lies behind its record %d", t, was)
	}
	a.last[t.Producer] = max(a.last[t.Producer], t.N)
	a.keep(offset, seen{t, sum})
	outcome, denied := l.denied[t]
	if denied && outcome != Unknown {
		l.report(Stored, s, offset, "%s was read, and answered %s", t, outcome)
	}
	acked, ok := a.acked[offset]
	delete(a.acked, offset)
	switch {
	case !ok && !denied:
		l.early[t] = place{s, offset}
	case !ok:
		delete(l.denied, t)
	case acked != t:
		l.report(Altered, s, offset, "%s is acknowledged there, and %s was read", acked, t)
	}
}

func (a *account) keep(offset uint64, r seen) {
	if len(a.ring) == keptPlaces {
		delete(a.recent, a.ring[0])
		a.ring = a.ring[1:]
	}
	a.ring = append(a.ring, offset)
	a.recent[offset] = r
}

// AuditGap says that the auditor was told of records that it will not get.
func (l *Ledger) AuditGap(s Shard, from, to uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(s)
	if a.began && from > a.next {
		l.report(Skipped, s, a.next, "the auditor was led to a gap that begins at %d", from)
	}
	a.next, a.began = max(a.next, to), true
	for offset := range a.acked {
		if offset >= from && offset < to {
			delete(a.acked, offset)
			l.counts.Unseen++
		}
	}
	if a.gaps = append(a.gaps, [2]uint64{from, to}); len(a.gaps) > keptGaps {
		a.gaps = a.gaps[1:]
	}
}

// Audited is where the auditor stands in a shard.
func (l *Ledger) Audited(s Shard) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(s).next
}

// Close says that all attempts were answered, and that a shard ends at end, exclusive.
func (l *Ledger) Close(s Shard, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(s)
	if a.next != end {
		l.report(Vanished, s, end, "the auditor stands at %d, and the shard ends there", a.next)
	}
	for offset, t := range a.acked {
		l.report(Lost, s, offset, "%s is acknowledged there, and the auditor did not get it", t)
	}
}

// Counts says how much was seen so far.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Open is how much the ledger holds: what has not met yet.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.early)
	for _, a := range l.shards {
		n += len(a.acked)
	}
	return n
}

// Violations are the first hundred; Counts says how many there are.
func (l *Ledger) Violations() []Violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Violation(nil), l.found...)
}
