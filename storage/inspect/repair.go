// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

// LostDir is the directory, below the shard's, that repairs set originals aside in.
const LostDir = "lost"

// lockPath leads from a shard's directory to the lock of the data directory that it lies in.
const lockPath = "../../../LOCK"

// Repaired is what a repair did, or would do.
type Repaired struct {
	Losses []Loss
	Aside  string   // directory that holds the originals of all files that were changed
	Files  []string // that were changed or removed
	Saved  []string // segments made of sound batches that lay behind damage
}

// Plan says what Repair would give up, and changes nothing.
func Plan(fsys vfs.FS, dir string) (*Repaired, error) {
	s, err := look(fsys, dir, Options{})
	if err != nil {
		return nil, fmt.Errorf("plan repair of %s: %w", dir, err)
	}
	p, err := s.plan()
	if err != nil {
		return nil, fmt.Errorf("plan repair of %s: %w", dir, err)
	}
	return p.result(""), nil
}

// Repair makes a shard openable whose only copy is damaged, by giving up what cannot be read: whoever calls it has an
// operator's word that the loss is accepted. Originals are copied to lost/<time>/ first, durably. What is given up is noted
// as gaps, which readers are told of; sequences and offsets go on behind everything that was ever seen, so none is given
// twice. A shard without damage is left as it is. When it is interrupted, repairing again completes it.
func Repair(fsys vfs.FS, dir string, now time.Time) (*Repaired, error) {
	r, err := repair(fsys, dir, now)
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	return r, nil
}

func repair(fsys vfs.FS, dir string, now time.Time) (*Repaired, error) {
	// A broker that has the shard open would go on with the old files.
	lock := path.Join(dir, lockPath)
	if _, err := fsys.Stat(lock); err == nil {
		held, err := fsys.Lock(lock)
		if err != nil {
			return nil, err
		}
		defer func() { _ = held.Close() }() // nothing hangs on when it is let go
	}
	s, err := look(fsys, dir, Options{})
	if err != nil {
		return nil, err
	}
	p, err := s.plan()
	if err != nil {
		return nil, err
	}
	if err := s.flushCuts(); err != nil {
		return nil, err
	}
	if len(p.changes) == 0 && len(p.saves) == 0 && p.gaps == nil && s.note == nil {
		return p.result(""), nil
	}
	aside := path.Join(LostDir, now.UTC().Format("20060102T150405.000000Z"))
	if err := s.setAside(p, aside); err != nil {
		return nil, err
	}
	for _, v := range p.saves {
		if err := s.write(v.r.from, v.f, v.r.pos, v.r.end); err != nil {
			return nil, err
		}
	}
	for i := range p.gaps {
		if p.gaps[i].RepairedAt == 0 {
			p.gaps[i].RepairedAt, p.gaps[i].Lost = now.UnixMicro(), aside
		}
	}
	// Before the files change, so that every hole that is there has its note.
	if p.gaps != nil || s.note != nil {
		if err := storage.WriteGaps(fsys, s.dir, p.gaps); err != nil {
			return nil, err
		}
	}
	// Newest first: a start in between finds damage, never a log that ends early.
	for _, c := range slices.Backward(p.changes) {
		if err := s.apply(c); err != nil {
			return nil, err
		}
	}
	return p.result(path.Join(s.dir, aside)), nil
}

// flushCuts completes what a repair that was interrupted between a cut and its flush has left.
func (s *survey) flushCuts() error {
	for _, f := range s.found {
		for _, g := range s.gaps {
			if g.FromSequence == f.scan.Cursor.Sequence && f.scan.Summary.Size == f.size {
				if err := s.apply(change{f: f, keep: f.size}); err != nil {
					return err
				}
			}
		}
	}
	if len(s.gaps) > 0 {
		return s.fs.SyncDir(s.dir)
	}
	return nil
}

func (p *plan) result(aside string) *Repaired {
	r := &Repaired{Losses: p.losses, Aside: aside}
	for _, c := range p.changes {
		r.Files = append(r.Files, segment.Name(c.f.base))
	}
	for _, v := range p.saves {
		r.Saved = append(r.Saved, segment.Name(v.r.from))
	}
	return r
}

// setAside copies every file that is going to change.
func (s *survey) setAside(p *plan, aside string) error {
	to := path.Join(s.dir, aside)
	if err := vfs.MakeDir(s.fs, s.dir, to); err != nil {
		return err
	}
	if s.note != nil {
		b, err := vfs.ReadFile(s.fs, path.Join(s.dir, storage.GapsName), 1<<26)
		if err == nil {
			err = vfs.WriteFile(s.fs, path.Join(to, storage.GapsName), b)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range p.changes {
		if err := s.copyFile(s.path(c.f.base), path.Join(to, segment.Name(c.f.base)), nil, 0, c.f.size); err != nil {
			return fmt.Errorf("set aside: %w", err)
		}
	}
	return s.fs.SyncDir(to)
}

// write makes a segment of bytes of f under a header of its own.
func (s *survey) write(base uint64, f *file, pos, end int64) error {
	head := segment.Header{ID: s.id, Shard: s.shard, Base: base}.Append(nil)
	temp := s.path(base) + vfs.TempSuffix
	if err := s.copyFile(s.path(f.base), temp, head, pos, end); err != nil {
		return err
	}
	if err := s.fs.Rename(temp, s.path(base)); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// copyFile writes head and the bytes of one file from pos to end to another, and flushes them.
func (s *survey) copyFile(from, to string, head []byte, pos, end int64) (err error) {
	src, err := s.fs.OpenRead(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // nothing was written through it
	if err := s.fs.Remove(to); err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return err
	}
	dst, err := s.fs.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	at := int64(0)
	if len(head) > 0 {
		if _, err := dst.WriteAt(head, 0); err != nil {
			return err
		}
		at = int64(len(head))
	}
	w := segment.NewWindow(src, end, 1)
	for pos < end {
		b, err := w.Bytes(pos, 1<<20)
		if err != nil {
			return err
		}
		if _, err := dst.WriteAt(b, at); err != nil {
			return err
		}
		pos, at = pos+int64(len(b)), at+int64(len(b))
	}
	return dst.Sync()
}

func (s *survey) apply(c change) error {
	name := s.path(c.f.base)
	if err := s.fs.Remove(path.Join(s.dir, segment.IndexName(c.f.base))); err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return err
	}
	switch {
	case c.keep == 0:
		if err := s.fs.Remove(name); err != nil {
			return err
		}
		return s.fs.SyncDir(s.dir)
	case c.header:
		return s.write(c.f.base, c.f, segment.HeaderSize, c.keep)
	}
	f, err := s.fs.OpenFile(name)
	if err != nil {
		return err
	}
	if err = f.Truncate(c.keep); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
