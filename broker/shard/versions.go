// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of the table that conditions are decided by.
const (
	MaxVersionKeys  = 1_000_000
	MaxVersionBytes = 128 << 20 // of keys, each with versionCost
	versionCost     = 100       // what a key takes beside its own bytes
	versionsIdle    = 10 * time.Minute
	versionsAgain   = time.Minute // from a table that grew too large to the next try
	versionsFailed  = time.Second // from a log that could not be read to the next try
	versionsSoon    = 20 * time.Millisecond
)

// Condition demands that the key of a record in the batch has this version: one above the offset of its newest
// record; 0 when the key is to be absent (never written, a tombstone, expired, or removed by retention).
type Condition struct {
	Record  int // index in the batch
	Version uint64
}

// newest is what the newest record of a key says.
type newest struct {
	offset uint64
	until  int64 // when it expires (us); 0 for never
	gone   bool  // it is a tombstone
}

func newestOf(offset uint64, appendTime int64, m *batch.Meta) newest {
	n := newest{offset: offset, gone: m.Null}
	if m.TTL > 0 {
		n.until = appendTime + m.TTL.Microseconds()
	}
	return n
}

// version is the key's at a time, in a log that starts at an offset: the same before and after the table was built
// anew from what the log keeps.
func (n newest) version(start uint64, at int64) uint64 {
	if n.gone || n.offset < start || n.until != 0 && n.until <= at {
		return 0
	}
	return n.offset + 1
}

// VersionTable is the newest record of each key. Whoever builds one for a core adds the shard's batches in order.
type VersionTable struct {
	keys    map[string]newest
	bytes   int64
	maxKeys int
	writes  int   // since the last sweep
	asOf    int64 // what had expired by then is not added
	full    bool  // a key was left out: what is in it may be wrong
}

func newVersionTable(maxKeys int, asOf int64) *VersionTable {
	return &VersionTable{keys: map[string]newest{}, maxKeys: maxKeys, asOf: asOf}
}

// Full says that there were more keys than may be remembered: whoever fills the table need not go on.
func (t *VersionTable) Full() bool { return t.full }

// Bytes is about the memory that it takes.
func (t *VersionTable) Bytes() int64 { return t.bytes }

func (t *VersionTable) tooLarge() bool { return len(t.keys) > t.maxKeys || t.bytes > MaxVersionBytes }

// Add takes one committed batch; what it deletes, or has expired already, is not kept.
func (t *VersionTable) Add(b batch.Batch) error {
	var m batch.Meta
	metas := b.Metas()
	for {
		ok, err := metas.Next(&m)
		if err != nil || !ok || t.full {
			return err
		}
		if m.Key == nil {
			continue
		}
		n := newestOf(metas.Offset(), b.AppendTime(), &m)
		if n.version(0, t.asOf) == 0 {
			t.remove(string(m.Key))
			continue
		}
		t.set(string(m.Key), n)
		t.full = t.tooLarge()
	}
}

func (t *VersionTable) set(key string, n newest) {
	if _, had := t.keys[key]; !had {
		t.bytes += int64(len(key)) + versionCost
	}
	t.keys[key] = n
	t.writes++
}

func (t *VersionTable) remove(key string) {
	if _, had := t.keys[key]; had {
		t.bytes -= int64(len(key)) + versionCost
		delete(t.keys, key)
	}
}

// sweep removes committed keys that are absent. It looks at every key, so only now and then.
func (t *VersionTable) sweep(ceiling, start uint64, at int64) {
	if t.writes < t.maxKeys/8 {
		return
	}
	t.writes = 0
	for key, n := range t.keys {
		if n.offset < ceiling && n.version(start, at) == 0 {
			t.remove(key)
		}
	}
}

// BuildVersions asks for a table of the committed batches from sequence From up to Until, exclusive; VersionsBuilt
// brings it. Publishes go on meanwhile.
type BuildVersions struct {
	From, Until uint64
	Table       *VersionTable // to be filled by one goroutine, not the core's
}

// VersionsBuilt hands over what was asked for. Err says why the log could not be read.
type VersionsBuilt struct {
	Build *BuildVersions
	Err   *code.Error
}

// DropVersions takes the table away, when it is too much for whoever has the memory; conditions are refused with Err for
// a while.
type DropVersions struct{ Err *code.Error }

func (VersionsBuilt) shardEvent() {}
func (DropVersions) shardEvent()  {}

// versions is what conditions are decided by: the newest record of each key of the log, pending ones too. It is
// derived, made when somebody first asks and dropped when nobody has for long, so that a log without conditions pays
// nothing; an index that is kept could take its place. The zero value has none.
type versions struct {
	table *VersionTable  // nil when there is none; while one is built, what was appended since
	build *BuildVersions // under way
	undo  []overwritten  // by pending batches, oldest first
	used  int64          // when a condition was last decided

	refusal *code.Error // why there is no table, until again
	again   int64
}

// overwritten is what a pending record hides: what a failed write brings back.
type overwritten struct {
	key    string
	offset uint64 // of the pending record
	was    newest
	had    bool
}

func (v *versions) ready() bool { return v.table != nil && v.build == nil }

// put takes a record batch that was appended.
func (v *versions) put(b batch.Batch) {
	var m batch.Meta
	metas := b.Metas()
	for {
		if ok, err := metas.Next(&m); err != nil || !ok { // it was walked when it came
			return
		}
		if m.Key == nil {
			continue
		}
		key := string(m.Key)
		was, had := v.table.keys[key]
		v.undo = append(v.undo, overwritten{key: key, offset: metas.Offset(), was: was, had: had})
		v.table.set(key, newestOf(metas.Offset(), b.AppendTime(), &m))
	}
}

// commit settles what lies below the ceiling. A tombstone is kept until then, so that an answer can wait for it,
// and while a table is built, so that it hides what that one finds.
func (v *versions) commit(ceiling uint64) {
	n := 0
	for ; n < len(v.undo) && v.undo[n].offset < ceiling; n++ {
		if u := &v.undo[n]; v.build == nil {
			v.bury(u.key, u.offset)
		}
	}
	rest := copy(v.undo, v.undo[n:])
	clear(v.undo[rest:])
	v.undo = v.undo[:rest]
}

func (v *versions) bury(key string, offset uint64) {
	if now := v.table.keys[key]; now.gone && now.offset == offset {
		v.table.remove(key)
	}
}

// cut takes back the records from offset on, newest first.
func (v *versions) cut(offset uint64) {
	for n := len(v.undo) - 1; n >= 0 && v.undo[n].offset >= offset; n-- {
		if u := &v.undo[n]; u.had {
			v.table.set(u.key, u.was)
		} else {
			v.table.remove(u.key)
		}
		v.undo[n] = overwritten{}
		v.undo = v.undo[:n]
	}
}

// adopt lays what was appended since the build began over what it found.
func (v *versions) adopt(ceiling uint64) {
	base, since := v.build.Table, v.table
	for i := range v.undo {
		if u := &v.undo[i]; !u.had {
			u.was, u.had = base.keys[u.key], true
			if _, found := base.keys[u.key]; !found {
				u.had = false
			}
		}
	}
	v.table, v.build = base, nil
	for key, n := range since.keys {
		base.set(key, n)
		if n.offset < ceiling {
			v.bury(key, n.offset)
		}
	}
}

// drop lets the table go; a refusal holds for a while.
func (v *versions) drop(refusal *code.Error, again int64) {
	*v = versions{refusal: refusal, again: again}
}

// at is the shard's now: the append time that a record would get.
func (c *Core) at(now int64) int64 { return max(now, c.lastAppend) }

// conditionsHold decides a conditional publish in its turn among the appends: between the comparison and the append
// nothing can happen (CA-07). It answers one that is refused.
func (c *Core) conditionsHold(now int64, p *Publish, eff *Effects) bool {
	if len(p.Conditions) == 0 {
		return true
	}
	if err := c.versionsReady(now, eff); err != nil {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return false
	}
	c.versions.used = now
	rests, err := c.compare(c.at(now), p)
	if err == nil {
		return true
	}
	if rests <= c.ceiling {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return false
	}
	// What the comparison lost against is pending. Told now, the publisher would believe in a record that a failed
	// write takes back.
	c.retries = append(c.retries, retry{rests: rests, err: err, to: p.To})
	return false
}

// compare says which condition is the first that does not hold, and on what the answer rests: the offset behind the
// record that it lost against, 0 for none.
func (c *Core) compare(at int64, p *Publish) (rests uint64, refusal *code.Error) {
	var m batch.Meta
	metas := p.Batch.Metas()
	next := 0
	for i := 0; next < len(p.Conditions); i++ {
		ok, err := metas.Next(&m)
		want := p.Conditions[next]
		if err != nil || !ok || want.Record < i {
			return 0, code.New(code.BadRequest, "condition %d is about record %d of a batch of %d", next, want.Record, p.Batch.Count())
		}
		if want.Record > i {
			continue
		}
		if m.Key == nil {
			return 0, code.New(code.BadRequest, "condition %d is about record %d, which has no key", next, i)
		}
		next++
		var have uint64
		n, known := c.versions.table.keys[string(m.Key)]
		if known {
			have, rests = n.version(c.start.Offset, at), n.offset+1
		}
		if have != want.Version {
			return rests, conflict(i, want.Version, have)
		}
		rests = 0
	}
	return 0, nil
}

func conflict(record int, want, have uint64) *code.Error {
	e := code.New(code.Conflict, "record %d was to follow version %d of its key, which has version %d", record, want, have)
	switch {
	case have == 0:
		e = code.New(code.Conflict, "record %d was to follow version %d of its key, which is absent", record, want)
	case want == 0:
		e = code.New(code.Conflict, "the key of record %d was to be absent, and has version %d", record, have)
	}
	return e.With(code.DetailLatest, have).With(code.DetailIndex, uint64(record))
}

// versionsReady says why conditions cannot be decided now, and sees to it that they soon can.
func (c *Core) versionsReady(now int64, eff *Effects) *code.Error {
	v := &c.versions
	if v.ready() {
		return nil
	}
	if v.refusal != nil && now < v.again {
		return v.refusal
	}
	if v.build == nil {
		c.buildVersions(now, eff)
	}
	if v.build == nil {
		return nil
	}
	return code.New(code.Opening, "the shard reads its log to learn the versions of its keys").Retry(versionsSoon)
}

// buildVersions begins a table. What is pending now and what is appended from now on is taken in here; the rest is
// read from the log by somebody who has the time.
func (c *Core) buildVersions(now int64, eff *Effects) {
	v := &c.versions
	v.drop(nil, 0)
	v.used = now
	v.table = newVersionTable(c.cfg.MaxVersionKeys, c.at(now))
	if c.start.Sequence < c.mark {
		v.build = &BuildVersions{From: c.start.Sequence, Until: c.mark, Table: newVersionTable(c.cfg.MaxVersionKeys, c.at(now))}
		eff.Versions = v.build
	}
	for i := range c.pending {
		v.put(c.pending[i].batch)
	}
	c.versionsFit(now)
}

// versionsBuilt takes a table over, unless it was given up meanwhile.
func (c *Core) versionsBuilt(now int64, ev VersionsBuilt) {
	v := &c.versions
	if v.build == nil || v.build != ev.Build {
		return
	}
	if ev.Err != nil {
		again := versionsFailed
		if ev.Err.Code == code.TooMany {
			again = versionsAgain
		}
		v.drop(ev.Err.Retry(versionsFailed), now+again.Microseconds())
		return
	}
	if v.build.Table.Full() {
		c.tooManyKeys(now)
		return
	}
	v.used = now
	v.adopt(c.ceiling)
	c.versionsFit(now)
}

// appended keeps the table current.
func (c *Core) appended(now int64, b batch.Batch) {
	if c.versions.table == nil {
		return
	}
	c.versions.put(b)
	c.versionsFit(now)
}

// versionsFit gives up a table that grew too large: conditional publishes are refused from then on, others are not
// concerned, and nobody is ever told a version that is wrong.
func (c *Core) versionsFit(now int64) {
	v := &c.versions
	if v.table.tooLarge() && v.build == nil {
		v.table.sweep(c.ceiling, c.start.Offset, c.at(now))
	}
	if v.table.tooLarge() {
		c.tooManyKeys(now)
	}
}

func (c *Core) tooManyKeys(now int64) {
	e := code.New(code.TooMany, "the shard cannot compare versions: it has more than %d keys, or %d bytes of them", c.cfg.MaxVersionKeys, MaxVersionBytes)
	c.versions.drop(e.With(code.DetailLimit, uint64(c.cfg.MaxVersionKeys)).Retry(time.Second), now+versionsAgain.Microseconds())
}

// VersionBytes is about the memory that the table of versions takes, without one that is being made.
func (c *Core) VersionBytes() int64 {
	if c.versions.table == nil {
		return 0
	}
	return c.versions.table.bytes
}

// forgetVersions drops a table that nobody has asked for long.
func (c *Core) forgetVersions(now int64) {
	if at := c.VersionsIdleAt(); at > 0 && now >= at {
		c.versions.drop(nil, 0)
	}
}

// VersionsIdleAt is when the table of versions is dropped if nobody asks for it (us); 0 when there is none. The core
// has to be stepped then, with anything.
func (c *Core) VersionsIdleAt() int64 {
	if !c.versions.ready() {
		return 0
	}
	return c.versions.used + versionsIdle.Microseconds()
}
