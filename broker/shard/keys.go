// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"time"

	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of the key index of a shard.
const (
	MaxKeys       = 1_000_000  // of a log that keeps all records, and knows its keys only while somebody asks
	MaxKeyBytes   = 128 << 20  // the same in bytes
	MaxNewestKeys = 10_000_000 // of a log that keeps the newest of each key, unless it sets its own

	keysIdle   = 10 * time.Minute
	keysAgain  = time.Minute // from an index that grew too large to the next try
	keysFailed = time.Second // from a log that could not be read to the next try
	keysSoon   = 20 * time.Millisecond
)

// BuildKeys asks for an index of the committed batches from sequence From up to Until, exclusive; KeysBuilt brings it.
// Publishes go on meanwhile.
type BuildKeys struct {
	From, Until uint64
	Index       *keyindex.Index // to be filled by one goroutine, not the core's

	asOf       int64 // what had expired by then need not be known, where no tombstone follows
	newest     bool
	max        int
	gens       generations
	incomplete bool // a key was left out: what the index says may be wrong
}

// Agrees says whether a snapshot that ends below a sequence, with a batch of this generation, is of this log as it
// stands: only then may it take the place of what lies before it. One from before the log's start may hold keys whose
// tombstones are gone.
func (b *BuildKeys) Agrees(generation, sequence uint64) bool {
	return sequence >= b.From && sequence <= b.Until && b.gens.at(sequence) == generation
}

// Add takes the next committed batch.
func (b *BuildKeys) Add(x batch.Batch) error {
	if b.incomplete {
		return nil
	}
	if err := b.Index.Apply(x); err != nil {
		return err
	}
	if b.tooLarge() && !b.newest {
		dropExpired(b.Index, b.asOf)
	}
	b.incomplete = b.tooLarge()
	return nil
}

func (b *BuildKeys) tooLarge() bool {
	// A log that keeps the newest of each key refuses new keys before it gets there; what it has, it must know.
	return !b.newest && (b.Index.Len() > b.max || b.Index.Bytes() > MaxKeyBytes)
}

// Full says that there are more keys than may be known: whoever fills the index need not go on.
func (b *BuildKeys) Full() bool { return b.incomplete }

// dropExpired removes keys that are absent, where nobody is told that they have expired.
func dropExpired(x *keyindex.Index, at int64) {
	var gone []goneKey
	for {
		gone = gone[:0]
		x.Due(at, 1024, func(key string, e keyindex.Entry) bool {
			gone = append(gone, goneKey{key, e.Offset})
			return true
		})
		for _, g := range gone {
			x.Remove(g.key, g.offset+1)
		}
		if len(gone) == 0 {
			return
		}
	}
}

type goneKey struct {
	key    string
	offset uint64
}

// KeysBuilt hands over what was asked for. Err says why the log could not be read.
type KeysBuilt struct {
	Build *BuildKeys
	Err   *code.Error
}

// WantKeys asks for the key index, as whoever reads by key needs it. The answer is nil once it is there.
type WantKeys struct{ To any }

// KeyRoom says that whoever has the memory has none left for keys: with Err, an index that is made on demand is given up,
// and one that is kept takes no new keys until it is told again without.
type KeyRoom struct{ Err *code.Error }

func (KeysBuilt) shardEvent() {}
func (WantKeys) shardEvent()  {}
func (KeyRoom) shardEvent()   {}

// keys knows the newest record of each key of the log: committed ones in the index, pending ones over it. It is derived.
// A log that keeps the newest of each key always has it; another one is read when somebody first asks, and the index is
// dropped when nobody has for long, so that a log without keyed readers pays nothing.
type keys struct {
	index   *keyindex.Index       // nil when there is none
	build   *BuildKeys            // under way
	since   map[string]pendingKey // the newest of each key committed since the build began
	pending pendingKeys
	used    int64 // when somebody last asked

	refusal *code.Error // why there is none, until again
	again   int64
	noRoom  *code.Error // for keys that are new
}

func (k *keys) ready() bool { return k.index != nil }

// following says whether appends are taken in: the index is there, or on its way.
func (k *keys) following() bool { return k.index != nil || k.build != nil }

// commit moves what is below the mark into the index, and says up to where that is complete.
func (k *keys) commit(mark, ceiling uint64) {
	if !k.following() {
		return
	}
	for _, p := range k.pending.commit(mark) {
		if k.index == nil {
			k.since[p.key] = p
		} else {
			p.apply(k.index)
		}
	}
	if k.index != nil {
		k.index.SetAsOf(mark, ceiling)
	}
}

// adopt lays what was committed since the build began over what it found.
func (k *keys) adopt(mark, ceiling uint64) {
	x := k.build.Index
	for _, p := range k.since {
		p.apply(x)
	}
	x.SetAsOf(mark, ceiling)
	k.index, k.build, k.since = x, nil, nil
}

// drop lets the index go; a refusal holds for a while.
func (k *keys) drop(refusal *code.Error, again int64) {
	*k = keys{refusal: refusal, again: again, noRoom: k.noRoom}
}

// at is the shard's now: the append time that a record would get.
func (c *Core) at(now int64) int64 { return max(now, c.lastAppend, c.notBefore) }

// NotBefore says that somebody was told this as the shard's time (us): it does not go back behind that.
func (c *Core) NotBefore(t int64) { c.notBefore = max(c.notBefore, t) }

// keysReady says why the newest of each key is not known now, and sees to it that it soon is.
func (c *Core) keysReady(now int64, eff *Effects) *code.Error {
	k := &c.keys
	switch {
	case c.lost != nil:
		return c.lost
	case k.ready():
		k.used = now
		return nil
	case k.refusal != nil && now < k.again:
		return k.refusal
	case k.build == nil:
		c.buildKeys(now, eff)
	}
	if k.ready() {
		return nil
	}
	return code.New(code.Opening, "the shard reads its log to learn its keys").Retry(keysSoon)
}

// buildKeys begins an index. What is pending now and what is appended from now on is taken in here; the rest is read from
// the log by somebody who has the time.
func (c *Core) buildKeys(now int64, eff *Effects) {
	k := &c.keys
	k.drop(nil, 0)
	k.used = now
	b := &BuildKeys{
		From: c.start.Sequence, Until: c.mark, Index: keyindex.New(), asOf: c.at(now),
		newest: c.cfg.KeepNewest, max: c.cfg.MaxKeys, gens: slices.Clone(c.gens),
	}
	k.build = b
	k.since = map[string]pendingKey{}
	for i := range c.pending {
		k.pending.add(c.pending[i].batch)
	}
	if c.start.Sequence >= c.mark { // there is nothing to be read
		k.adopt(c.mark, c.ceiling)
		return
	}
	eff.Keys = k.build
}

// keysBuilt takes an index over, unless it was given up meanwhile.
func (c *Core) keysBuilt(now int64, ev KeysBuilt) {
	k := &c.keys
	if k.build == nil || k.build != ev.Build {
		return
	}
	if ev.Err != nil {
		again := keysFailed
		if ev.Err.Code == code.TooMany {
			again = keysAgain
		}
		k.drop(ev.Err.Retry(keysFailed), now+again.Microseconds())
		return
	}
	if k.build.Full() {
		c.tooManyKeys(now)
		return
	}
	k.used = now
	k.adopt(c.mark, c.ceiling)
	c.keysFit(now)
}

// wantKeys answers who reads by key.
func (c *Core) wantKeys(now int64, ev WantKeys, eff *Effects) {
	eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: c.keysReady(now, eff)})
}

// appended keeps what is known of keys current.
func (c *Core) appended(now int64, b batch.Batch) {
	if !c.keys.following() {
		return
	}
	c.keys.pending.add(b)
	c.keysFit(now)
}

// keysFit gives up an index on demand that grew too large: who asks by key is refused from then on, others are not
// concerned, and nobody is ever told of a key what is wrong.
func (c *Core) keysFit(now int64) {
	k := &c.keys
	if c.cfg.KeepNewest || !c.keysTooLarge() {
		return
	}
	if k.index != nil {
		dropExpired(k.index, c.at(now))
		if c.start.Sequence > 0 && c.keysTooLarge() {
			sweep := k.index.SweepBelow(c.start.Sequence, c.start.Offset)
			for more := true; more; {
				_, more = sweep.Next(MaxKeys)
			}
		}
	}
	if c.keysTooLarge() {
		c.tooManyKeys(now)
	}
}

func (c *Core) keysTooLarge() bool {
	n := c.keys.pending.len() + len(c.keys.since)
	if x := c.keys.index; x != nil {
		return x.Len()+n > c.cfg.MaxKeys || x.Bytes() > MaxKeyBytes
	}
	return n > c.cfg.MaxKeys
}

func (c *Core) tooManyKeys(now int64) {
	e := code.New(code.TooMany, "the shard cannot know its keys: it has more than %d, or %d bytes of them", c.cfg.MaxKeys, MaxKeyBytes)
	c.keys.drop(e.With(code.DetailLimit, uint64(c.cfg.MaxKeys)).Retry(time.Second), now+keysAgain.Microseconds())
}

// keyRoom is told what room there is for keys.
func (c *Core) keyRoom(now int64, ev KeyRoom) {
	switch {
	case c.cfg.KeepNewest:
		c.keys.noRoom = ev.Err
	case ev.Err != nil:
		c.keys.drop(ev.Err, now+keysAgain.Microseconds())
	}
}

// roomForKeys refuses a publish that brings more new keys than a log which knows all of its keys may have. What
// overwrites or deletes goes on.
func (c *Core) roomForKeys(b batch.Batch) *code.Error {
	k := &c.keys
	switch {
	case !c.cfg.KeepNewest:
		return nil
	case !k.ready() && len(k.since)+k.pending.len() < c.cfg.MaxKeys:
		return nil
	case !k.ready():
		return code.New(code.Opening, "the shard reads its log to learn its keys, and has noted %d meanwhile", len(k.since)).Retry(keysSoon)
	}
	room := c.cfg.MaxKeys - k.index.Len() - k.pending.len()
	if k.noRoom != nil {
		room = 0
	}
	if b.Count() <= room {
		return nil
	}
	var m batch.Meta
	for metas, i := b.Metas(), uint64(0); ; i++ {
		if ok, _ := metas.Next(&m); !ok { // it was walked when it came
			return nil
		}
		if m.Key == nil || m.Null {
			continue
		}
		if n, known := k.newest(m.Key); known && !n.gone {
			continue
		}
		if room--; room >= 0 {
			continue
		}
		if k.noRoom != nil {
			return k.noRoom
		}
		return code.New(code.TooMany, "the shard has %d keys, as many as the log may have in one (max_keys): delete some, or raise it", k.index.Len()).
			With(code.DetailLimit, uint64(c.cfg.MaxKeys)).With(code.DetailIndex, i).WithClass(code.ClassFatal) // it does not pass by waiting
	}
}

// GenerationAt is the generation of the last batch below a sequence; 0 when the shard does not remember it.
func (c *Core) GenerationAt(sequence uint64) uint64 { return c.gens.at(sequence) }

// KeyBytes is about the memory that the index takes, without one that is being made.
func (c *Core) KeyBytes() int64 {
	if c.keys.index == nil {
		return 0
	}
	return c.keys.index.Bytes()
}

// forgetKeys drops an index that nobody has asked for long.
func (c *Core) forgetKeys(now int64) {
	if at := c.KeysIdleAt(); at > 0 && now >= at {
		c.keys.drop(nil, 0)
	}
}

// KeysIdleAt is when the index is dropped if nobody asks for it (us); 0 when there is none, or it is kept. The core has
// to be stepped then, with anything.
func (c *Core) KeysIdleAt() int64 {
	if !c.keys.ready() || c.cfg.KeepNewest {
		return 0
	}
	return c.keys.used + keysIdle.Microseconds()
}

// keysAt is when a log that always knows its keys is to learn them (us); 0 when it does.
func (c *Core) keysAt() int64 {
	if !c.cfg.KeepNewest || c.keys.following() || c.lost != nil {
		return 0
	}
	return max(c.keys.again, 1)
}

// Holds says whether an entry of the index is there at a time (us), in a log that begins where this one does: it has
// not expired, and retention has not taken it.
func (v *View) Holds(e keyindex.Entry, at int64) bool { return v.Start.holds(e) && !expiredAt(e, at) }

func expiredAt(e keyindex.Entry, at int64) bool { return e.Until != 0 && e.Until <= at }

// holds says whether the record lies in a log that begins here. One that was carried is where it was carried to.
func (s LogStart) holds(e keyindex.Entry) bool {
	return e.Sequence >= s.Sequence && (e.Carried || e.Offset >= s.Offset)
}
