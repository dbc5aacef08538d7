// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"sync/atomic"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/storage/keyindex"
	"margay.dev/storage/vfs"
)

const (
	// defaultSaveKeys is how much of a log is written between two snapshots of its keys, at the least: what an opening reads
	// behind the newest one.
	defaultSaveKeys = 64 << 20
	// saveAtClose is the least that an orderly end saves an opening from reading.
	saveAtClose = 256 << 10
	// savedKey is about what a snapshot takes of a key. What the index takes of the memory is another matter, and not the
	// same in two runs.
	savedKey = 120
)

// savedKeys is what is known of the snapshot of a shard's keys.
type savedKeys struct {
	written int64 // of the log, since it was taken
	saving  atomic.Bool
}

// loadKeys fills the index from its snapshot, where there is one that the log agrees with, and returns the sequence from
// which the log is to be read. The log is the truth: whatever is wrong with a snapshot, it is as if there was none.
func (s *Shard) loadKeys(b *shard.BuildKeys) (from uint64) {
	if s.cfg.Memory || !s.cfg.KeepNewest {
		return b.From
	}
	index, meta, err := keyindex.Load(s.opts.FS, s.opts.Dir, s.Ref.Log, s.Ref.Shard)
	switch {
	case errors.Is(err, vfs.ErrNotExist):
		return b.From
	case err != nil:
		s.host.log.Warn("the snapshot of the keys is of no use: the log is read whole", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
		return b.From
	case !b.Agrees(meta.Generation, meta.Sequence):
		return b.From
	}
	b.Index = index
	return meta.Sequence
}

// saveKeys takes a snapshot when enough was written since the last one, and writes it beside the shard's goroutine.
func (s *Shard) saveKeys() {
	v := s.View()
	if s.saved.saving.Load() || v.Keys == nil || !s.savesKeys() || s.saved.written < max(s.host.cfg.SaveKeys, 2*savedKey*int64(v.Keys.Len())) {
		return
	}
	s.saved.written = 0
	s.saved.saving.Store(true)
	shot, meta := v.Keys.Snapshot(), s.keysMeta(v)
	s.host.beside(&s.beside, func() {
		defer s.saved.saving.Store(false)
		s.save(shot, meta)
	})
}

func (s *Shard) savesKeys() bool { return s.cfg.KeepNewest && !s.cfg.Memory }

func (s *Shard) keysMeta(v shard.View) keyindex.Meta {
	return keyindex.Meta{Log: s.Ref.Log, Shard: s.Ref.Shard, Generation: s.core.GenerationAt(v.Mark), Sequence: v.Mark, Offset: v.Ceiling}
}

func (s *Shard) save(shot *keyindex.Snapshot, meta keyindex.Meta) {
	began := s.host.cfg.Clock()
	if err := keyindex.Save(s.opts.FS, s.opts.Dir, meta, shot); err != nil {
		s.host.log.Warn("the snapshot of the keys was not written: the next opening reads more of the log", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
	} else if took := s.host.cfg.Clock().Sub(began); took > 5*time.Second {
		s.host.log.Info("wrote a snapshot of the keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "took", took)
	}
}

// saveKeysAtClose spares the next opening the reading of the log.
func (s *Shard) saveKeysAtClose() {
	v := s.View()
	if v.Keys == nil || !s.savesKeys() || s.failure != nil || s.saved.written < min(saveAtClose, s.host.cfg.SaveKeys) {
		return
	}
	s.save(v.Keys.Snapshot(), s.keysMeta(v))
}
