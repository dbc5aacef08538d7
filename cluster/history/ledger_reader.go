// SPDX-License-Identifier: Apache-2.0

package history

// LedgerReader is any other reader of a Ledger's shards: it may be led past records that it is told of, and what it gets
// has to be what the auditor got, as far as that is remembered. It is for one goroutine.
type LedgerReader struct {
	ledger   *Ledger
	name     string
	filtered bool
	at       map[Shard]uint64
	last     map[reading]uint64
}

type reading struct {
	shard    Shard
	producer uint32
}

// Reader makes a reader. A filtered one may be led past records without being told.
func (l *Ledger) Reader(name string, filtered bool) *LedgerReader {
	return &LedgerReader{ledger: l, name: name, filtered: filtered, at: map[Shard]uint64{}, last: map[reading]uint64{}}
}

// Read says that the reader got a record.
func (r *LedgerReader) Read(s Shard, offset uint64, t Tag, sum uint32) {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Read++
	next, began := r.at[s]
	switch {
	case !began || offset == next:
	case offset < next:
		l.report(Repeated, s, offset, "reader %s was at %d already", r.name, next)
	case !r.filtered:
		l.report(Skipped, s, next, "reader %s was led to %d without being told", r.name, offset)
	}
	r.at[s] = offset + 1
	if was := r.last[reading{s, t.Producer}]; t.N <= was {
		l.report(ProducerOrder, s, offset, "reader %s got %s behind record %d", r.name, t, was)
	}
	r.last[reading{s, t.Producer}] = t.N
	if t.N > l.begun[t.Producer] || t.N == 0 {
		l.report(Phantom, s, offset, "reader %s got %s, which was never published", r.name, t)
	}
	if other, ok := l.account(s).recent[offset]; ok && other != (seen{t, sum}) {
		l.report(Disagree, s, offset, "reader %s got %s (%08x), the auditor %s (%08x)", r.name, t, sum, other.Tag, other.sum)
	}
}

// Gap says that the reader was told of records that it will not get.
func (r *LedgerReader) Gap(s Shard, from, to uint64) {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if next, began := r.at[s]; began && !r.filtered && from > next {
		l.report(Skipped, s, next, "reader %s was led to a gap that begins at %d", r.name, from)
	}
	r.at[s] = max(r.at[s], to)
	l.counts.Lost += to - from
}

// Resume says that the reader begins again, not behind where it was and not before floor: what it read and did not commit
// comes again.
func (r *LedgerReader) Resume(s Shard, offset, floor uint64) {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	next, began := r.at[s]
	switch {
	case !began:
	case offset > next && !r.filtered:
		l.report(Skipped, s, next, "reader %s resumes at %d", r.name, offset)
	case offset < floor:
		l.report(Repeated, s, offset, "reader %s resumes there, and had committed %d", r.name, floor)
	}
	r.at[s] = offset
	for k := range r.last {
		if k.shard == s {
			delete(r.last, k)
		}
	}
}
