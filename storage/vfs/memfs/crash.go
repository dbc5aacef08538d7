// SPDX-License-Identifier: Apache-2.0

package memfs

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Crash returns what a power cut at this moment would leave, drawn from rng: everything that was flushed; of a change
// of names that was not, some first part; of a file's changes of size, some first part, and its last growth to any
// byte of it; of each written block the old bytes, the new ones, or seldom some sectors of each. With a nil rng nothing
// is left that was not flushed.
//
// The file system itself runs on untouched: a crash only asks a question, which a test may put again at each step.
// The answer has no locks, the same capacity and fresh counts.
func (m *FS) Crash(rng *rand.Rand) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[*directory]map[string]*node{} // those with a change that was not durable
	view := func(d *directory) map[string]*node {
		if names[d] == nil {
			names[d] = maps.Clone(d.durable)
		}
		return names[d]
	}
	for _, c := range m.pending {
		if rng == nil {
			break
		}
		for _, step := range c.steps[:rng.IntN(len(c.steps)+1)] {
			persist(step, view)
		}
	}
	left := New(m.rng)
	left.capacity = m.capacity
	left.root = left.crashDir(m.root.dir, view, rng)
	return left
}

func (m *FS) crashDir(d *directory, view func(*directory) map[string]*node, rng *rand.Rand) *node {
	kept, left := view(d), newDir()
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		n := kept[name]
		if n.dir != nil {
			left.dir.entries[name] = m.crashDir(n.dir, view, rng)
			continue
		}
		now := &node{file: n.file.crash(rng), links: 1}
		left.dir.entries[name] = now
		m.recount(now)
	}
	left.dir.durable = maps.Clone(left.dir.entries)
	return left
}

// crash returns the file as a power cut leaves it.
func (f *file) crash(rng *rand.Rand) *file {
	left := newFile()
	left.blocks = maps.Clone(f.durableBlocks)
	kept := keptResizes(f.resizes, rng)
	cutBlocks(left.blocks, lowest(kept, f.durableSize))
	if rng != nil {
		for _, i := range slices.Sorted(maps.Keys(f.flown)) {
			if rng.IntN(2) == 0 {
				left.blocks[i] = f.flown[i]
			}
		}
		cutBlocks(left.blocks, lowest(kept, math.MaxInt64))
		for _, i := range slices.Sorted(maps.Keys(f.dirty)) {
			if b := tear(left.blocks[i], f.blocks[i], rng); b != nil {
				left.blocks[i] = b
			}
		}
	}
	left.size = f.durableSize
	if len(kept) > 0 {
		left.size = kept[len(kept)-1].size
	}
	if rest := f.resizes[len(kept):]; rng != nil && len(rest) > 0 && rest[0].size > left.size {
		left.size += partOf(rest[0].size-left.size, rng)
	}
	cutBlocks(left.blocks, left.size)
	left.durableSize, left.durableBlocks = left.size, maps.Clone(left.blocks)
	return left
}

// keptResizes draws how many of the changes of size were kept.
func keptResizes(all []resize, rng *rand.Rand) []resize {
	if rng == nil || len(all) == 0 {
		return nil
	}
	switch rng.IntN(4) {
	case 0:
		return nil
	case 1:
		return all
	default:
		return all[:rng.IntN(len(all)+1)]
	}
}

// partOf draws how far a growth by n bytes came: to any byte of it, to the end of a sector, or not at all.
func partOf(n int64, rng *rand.Rand) int64 {
	part := rng.Int64N(n)
	switch rng.IntN(3) {
	case 0:
		return part
	case 1:
		return part / sectorSize * sectorSize
	default:
		return 0
	}
}

// tear draws what the medium holds of a block that was on its way there.
func tear(before, after *block, rng *rand.Rand) *block {
	switch rng.IntN(8) {
	case 0, 1, 2:
		return before
	case 3, 4, 5, 6:
		whole := *after // a copy: the running file system still writes to it
		return &whole
	}
	mixed := new(block)
	if before != nil {
		*mixed = *before
	}
	for at := 0; at < blockSize; at += sectorSize {
		if rng.IntN(2) == 0 {
			copy(mixed[at:at+sectorSize], after[at:])
		}
	}
	return mixed
}
