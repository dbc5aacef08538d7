// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"github.com/tidwall/btree"

	"margay.dev/broker/group"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// placesAgain is when to read again what could not be read (us).
const placesAgain = 1_000_000

// places knows where messages lie that were carried: below the beginning of the log, nothing else does. It is derived from
// the carried batches of the log, which is read for it at an opening, unless no group needs anything there.
type places struct {
	rows  btree.Map[uint64, place] // by offset
	bytes int64                    // of the records
	ready bool
	build *BuildPlaces
	again int64 // not before (us)
}

// place is where a message was carried to.
type place struct {
	sequence uint64
	size     uint32 // of the record, about
	message  group.Message
}

// BuildPlaces asks for the carried batches from sequence From up to Until, exclusive: hand each to Add, and then PlacesBuilt
// back.
type BuildPlaces struct {
	From, Until uint64
	found       map[uint64]place
}

// Add takes the next committed batch.
func (b *BuildPlaces) Add(x batch.Batch) error {
	return eachPlace(x, func(p place) { b.found[p.message.Offset] = p })
}

// PlacesBuilt hands over what was asked for. Err says why the log could not be read.
type PlacesBuilt struct {
	Build *BuildPlaces
	Err   *code.Error
}

func (PlacesBuilt) shardEvent() {}

func eachPlace(x batch.Batch, f func(place)) error {
	if !x.IsCarried() {
		return nil
	}
	var m batch.Meta
	for metas := x.Metas(); ; {
		ok, err := metas.Next(&m)
		if err != nil || !ok {
			return err
		}
		f(place{
			sequence: x.Sequence(), size: uint32(len(m.Key) + m.ValueSize + m.HeadersSize + 32),
			message: group.MessageOf(&m, metas.Offset(), metas.AppendTime()),
		})
	}
}

// Place is the sequence of the batch to which a message was carried; 0 when it was not.
func (p *places) Place(offset uint64) uint64 {
	x, _ := p.rows.Get(offset)
	return x.sequence
}

// Below gives what was carried of messages below an offset, in order.
func (p *places) Below(offset uint64, f func(group.Message) bool) {
	p.rows.Scan(func(o uint64, x place) bool { return o < offset && f(x.message) })
}

// Ready says whether the places are known.
func (p *places) Ready() bool { return p.ready }

func (p *places) set(x place) {
	if was, ok := p.rows.Set(x.message.Offset, x); ok {
		p.bytes -= int64(was.size)
	}
	p.bytes += int64(x.size)
}

// learnPlaces sees to it that the places are known.
func (c *Core) learnPlaces(now int64, eff *Effects) {
	p := &c.places
	if !c.cfg.KeepUnsettled || p.ready || p.build != nil || c.lost != nil || now < p.again {
		return
	}
	if c.start.Sequence >= c.mark || c.groups.Lowest() >= c.start.Offset {
		p.ready = true
		return
	}
	p.build = &BuildPlaces{From: c.start.Sequence, Until: c.mark, found: map[uint64]place{}}
	eff.Places = p.build
}

// placesAt is when the places are to be learned (us); 0 when they are known, or on their way.
func (c *Core) placesAt() int64 {
	if p := &c.places; !c.cfg.KeepUnsettled || p.ready || p.build != nil {
		return 0
	}
	return max(c.places.again, 1)
}

// placesBuilt takes over what was read; what was carried since is where it was carried to.
func (c *Core) placesBuilt(now int64, ev PlacesBuilt) {
	p := &c.places
	if p.build == nil || p.build != ev.Build {
		return
	}
	p.build = nil
	if ev.Err != nil {
		p.again = now + placesAgain
		return
	}
	for o, x := range ev.Build.found {
		if p.Place(o) == 0 && c.needed(o) {
			p.set(x)
		}
	}
	p.ready = true
	c.groups.Known()
}

// carriedTo notes where a carried batch lies that is committed.
func (c *Core) carriedTo(b batch.Batch) {
	if !c.cfg.KeepUnsettled {
		return
	}
	_ = eachPlace(b, func(x place) { // it was made here
		if c.needed(x.message.Offset) {
			c.places.set(x)
		}
	})
}

// needed says whether a message may still be handed out, or is a dead letter: without a group, to the first that comes.
func (c *Core) needed(offset uint64) bool { return c.groups.Len() == 0 || c.groups.Live(offset) }

// forgetPlaces drops those of messages that are needed no more.
func (c *Core) forgetPlaces() {
	var gone []uint64
	c.places.rows.Scan(func(o uint64, _ place) bool {
		if !c.needed(o) {
			gone = append(gone, o)
		}
		return true
	})
	for _, o := range gone {
		if was, ok := c.places.rows.Delete(o); ok {
			c.places.bytes -= int64(was.size)
		}
	}
}
