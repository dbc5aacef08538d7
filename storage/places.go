// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"math"
	"sync"

	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// placeGroup is how many batches that follow each other share an entry of places.
const placeGroup = 64

// maxPlaces bounds the entries of places: with the map around them about 16 MiB, for more than three million batches.
const maxPlaces = 50_000

// places remember where batches lie, for who reads them one by one and in no order: looking for one from the index of its
// segment reads 64 KiB and passes over hundreds of others. They are shared as the files are.
type places struct {
	mu     sync.Mutex
	groups map[placeKey]*[placeGroup]uint32 // positions in the segment of each; 0 for not known
}

type placeKey struct {
	log   *Disk
	epoch uint64 // of the log: what lay elsewhere before a cut is not found
	group uint64
}

func placeOf(v *view, l *Disk, seq uint64) placeKey {
	return placeKey{log: l, epoch: v.epoch, group: seq / placeGroup}
}

// at returns the position of a batch, 0 when it is not known.
func (p *places) at(v *view, l *Disk, seq uint64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[placeOf(v, l, seq)]; g != nil {
		return int64(g[seq%placeGroup])
	}
	return 0
}

// put remembers batches of one segment that follow each other. When there are too many groups any others go: which are
// wanted next nobody knows.
func (p *places) put(v *view, l *Disk, seq uint64, positions []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups == nil {
		p.groups = map[placeKey]*[placeGroup]uint32{}
	}
	for _, pos := range positions {
		key := placeOf(v, l, seq)
		g := p.groups[key]
		if g == nil {
			for old := range p.groups {
				if len(p.groups) < maxPlaces {
					break
				}
				delete(p.groups, old)
			}
			g = new([placeGroup]uint32)
			p.groups[key] = g
		}
		if pos <= math.MaxUint32 {
			g[seq%placeGroup] = uint32(pos)
		}
		seq++
	}
}

// forget lets go of everything of one log.
func (p *places) forget(l *Disk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.groups {
		if key.log == l {
			delete(p.groups, key)
		}
	}
}

// walkBuffers are what segments are walked through in search of a batch.
var walkBuffers = sync.Pool{New: func() any { return new([walkChunk]byte) }}

// find returns the position of a batch, and remembers those of the batches that it passes on the way and those that it has
// read with it.
func (l *Disk) find(v *view, seq uint64) (int64, error) {
	if pos := l.o.Files.places.at(v, l, seq); pos != 0 {
		return pos, nil
	}
	var (
		pos, from int64
		first     uint64
		passed    []int64
	)
	err := l.search(v,
		func(entries []segment.Entry) (segment.Entry, bool) {
			pos, from, passed = 0, 0, passed[:0]
			return segment.BySequence(entries, seq)
		},
		func(b batch.Batch, at int64) (done bool) {
			if len(passed) == 0 {
				first, from = b.Sequence(), at
			}
			passed = append(passed, at)
			if b.Sequence() == seq {
				pos = at
			}
			end := at + int64(b.Size()) // of what the next step would look at
			return pos != 0 && (end+batch.HeaderSize > from+walkChunk || end >= v.Size)
		})
	if pos == 0 && err == nil {
		return 0, errCut // never: the walk ends with the batch or with an error
	}
	if pos == 0 {
		return 0, err
	}
	l.o.Files.places.put(v, l, first, passed) // an error lies behind what was looked for
	return pos, nil
}
