// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Condition demands that the key of a record in the batch has this version: one above the offset of its newest
// record; 0 when the key is to be absent (never written, a tombstone, expired, or removed by retention).
type Condition struct {
	Record  int // index in the batch
	Version uint64
}

// conditionsHold decides a conditional publish in its turn among the appends: between the comparison and the append
// nothing can happen (CA-07). It answers one that is refused.
func (c *Core) conditionsHold(now int64, p *Publish, eff *Effects) bool {
	if len(p.Conditions) == 0 {
		return true
	}
	if err := c.keysReady(now, eff); err != nil {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return false
	}
	rests, err := c.compare(c.at(now), p)
	if err == nil {
		return true
	}
	c.refuseBehind(p, rests, err, eff)
	return false
}

// refuseBehind refuses a publish for what a record says, once everything below offset rests is committed. Told now, the
// publisher would believe in a record that a failed write takes back.
func (c *Core) refuseBehind(p *Publish, rests uint64, err *code.Error, eff *Effects) {
	if rests <= c.ceiling {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return
	}
	c.retries = append(c.retries, retry{rests: rests, err: err, to: p.To})
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
		rests = 0
		n, known := c.keys.newest(m.Key)
		if known {
			have = n.version(c.start, at)
		}
		if n.pending {
			rests = n.Offset + 1
		}
		if have != want.Version {
			return rests, conflict(i, want.Version, have)
		}
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
