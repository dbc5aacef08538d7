// SPDX-License-Identifier: Apache-2.0

package memfs

const (
	// blockSize is the unit that is taken from the capacity and kept or lost at a power cut.
	blockSize = 4096
	// sectorSize is the unit within which a block that was being written is never torn.
	sectorSize = 512
)

type block = [blockSize]byte

// resize is a change of a file's size that is not yet durable. Sizes change in order, as a journal keeps them.
type resize struct {
	size int64
	cut  bool // a truncation: bytes beyond size are gone and do not come back when the file grows again
}

// file is the bytes of a file, twice: as readers see them, and as the medium holds them. A block that the medium holds
// is never changed in place, so the two share it until it is written again.
type file struct {
	size   int64
	blocks map[int64]*block
	dirty  map[int64]bool // blocks that the next Sync writes
	// flown are blocks as they were before a truncation that is not yet durable: they may have been written by then.
	flown   map[int64]*block
	resizes []resize // since the last Sync

	durableSize   int64
	durableBlocks map[int64]*block

	reserved int64 // blocks from the start that Preallocate took
	counted  int64 // bytes this file takes of the capacity
}

func newFile() *file {
	return &file{
		blocks: map[int64]*block{}, dirty: map[int64]bool{}, flown: map[int64]*block{}, durableBlocks: map[int64]*block{},
	}
}

func blocksFor(size int64) int64 { return (size + blockSize - 1) / blockSize }

// blocksTaken counts reserved blocks and those beyond them that hold data.
func (f *file) blocksTaken() int64 {
	n := f.reserved
	for i := range f.blocks {
		if i >= f.reserved {
			n++
		}
	}
	return n
}

func (f *file) takes(i int64) bool { return i < f.reserved || f.blocks[i] != nil }

func (f *file) readAt(p []byte, off int64) int {
	if off >= f.size {
		return 0
	}
	n := int(min(int64(len(p)), f.size-off))
	for done := 0; done < n; {
		i, at := (off+int64(done))/blockSize, (off+int64(done))%blockSize
		chunk := p[done:min(n, done+int(blockSize-at))]
		if b := f.blocks[i]; b != nil {
			copy(chunk, b[at:])
		} else {
			clear(chunk)
		}
		done += len(chunk)
	}
	return n
}

// writeAt writes all of p, for which the caller has found room, and returns how many blocks it took.
func (f *file) writeAt(p []byte, off int64) (taken int64) {
	for done := 0; done < len(p); {
		i, at := (off+int64(done))/blockSize, (off+int64(done))%blockSize
		if !f.takes(i) {
			taken++
		}
		done += copy(f.writable(i)[at:], p[done:])
	}
	if end := off + int64(len(p)); end > f.size {
		f.resizes = append(f.resizes, resize{size: end})
		f.size = end
	}
	return taken
}

// writable returns block i in a copy that only readers share.
func (f *file) writable(i int64) *block {
	b := f.blocks[i]
	if b != nil && f.dirty[i] {
		return b
	}
	fresh := new(block)
	if b != nil {
		*fresh = *b
	}
	f.blocks[i], f.dirty[i] = fresh, true
	return fresh
}

func (f *file) truncate(size int64) {
	if size < f.size {
		for i := range f.dirty {
			if (i+1)*blockSize > size {
				whole := *f.blocks[i]
				f.flown[i] = &whole
			}
		}
		if i := size / blockSize; size%blockSize != 0 && f.blocks[i] != nil {
			// Real file systems write the zeros behind the new end on their own, and may do so before the cut is kept.
			clear(f.writable(i)[size%blockSize:])
		}
		cutBlocks(f.blocks, size)
		for i := range f.dirty {
			if f.blocks[i] == nil {
				delete(f.dirty, i)
			}
		}
		f.reserved = min(f.reserved, blocksFor(size))
	}
	if size != f.size {
		f.resizes = append(f.resizes, resize{size: size, cut: size < f.size})
		f.size = size
	}
}

// cutBlocks drops what lies beyond size.
func cutBlocks(blocks map[int64]*block, size int64) {
	for i, b := range blocks {
		switch keep := size - i*blockSize; {
		case keep <= 0:
			delete(blocks, i)
		case keep < blockSize:
			short := new(block)
			copy(short[:keep], b[:keep])
			blocks[i] = short
		}
	}
}

// lowest is the smallest size a truncation among the resizes has set.
func lowest(resizes []resize, size int64) int64 {
	for _, r := range resizes {
		if r.cut {
			size = min(size, r.size)
		}
	}
	return size
}

// sync makes the file durable.
func (f *file) sync() {
	cutBlocks(f.durableBlocks, lowest(f.resizes, f.durableSize))
	for i := range f.dirty {
		f.durableBlocks[i] = f.blocks[i]
	}
	clear(f.dirty)
	clear(f.flown)
	f.durableSize, f.resizes = f.size, nil
}

// failSync forgets which blocks were to be written, as a kernel does whose write to the medium failed: readers still
// see them, no later sync writes them, a power cut loses them.
func (f *file) failSync() {
	clear(f.dirty)
	clear(f.flown)
}
