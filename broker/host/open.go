// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"

	"margay.dev/broker/fanout"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/control"
)

// A log in memory holds at most memoryBytes, and is trimmed to memoryKept before it gets there: what comes
// between two looks at retention must still fit.
const (
	memoryBytes = storage.DefaultMemoryBytes
	memoryKept  = memoryBytes / 4 * 3
	memoryFull  = memoryBytes / 8 * 7
)

// openShard recovers the shard's log, if it has one, and starts its core at the fresh generation.
func (h *Host) openShard(ref Ref, l *control.Log, generation uint64, cut *uint64, kept storage.Log) (*Shard, error) {
	s := &Shard{
		Ref: ref, host: h, opening: h.openings.Add(1), cfg: shardConfig(h.cfg.Node, l, generation),
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), quit: make(chan struct{}),
		opts: storage.Options{
			FS: h.cfg.FS, Dir: h.cfg.Dir.ShardDir(ref.Log, ref.Shard), ID: ref.Log, Shard: ref.Shard,
			ZeroAhead: l.Fsync == control.FsyncAlways, CutTo: cut, Files: h.files, SegmentBytes: l.SegmentSize(), Logger: h.log.With("name", l.FullName()),
		},
		interval: l.FsyncInterval,
	}
	s.cfg.Read = s.readRecord
	s.core = shard.New(s.cfg)
	if kept != nil {
		if err := s.recovered(kept); err != nil {
			return nil, err
		}
	}
	if !s.cfg.Memory {
		if err := s.openDisk(); err != nil {
			return nil, err
		}
	}
	s.opts.CutTo = nil
	h.sessions.greet(ref, h.now(), s.core, &s.eff)
	s.publishView()
	v := s.View()
	s.hub = fanout.NewHub(ref.Shard, fanout.Position{Sequence: v.Mark, Offset: v.Ceiling})
	s.nextTick = h.cfg.Clock()
	return s, nil
}

// openDisk recovers the log on disk, if there is one.
func (s *Shard) openDisk() error {
	h := s.host
	made, err := h.cfg.Dir.Made(s.Ref.Log, s.Ref.Shard)
	if err != nil {
		return err
	}
	if err := h.budget.take(); err != nil {
		return err
	}
	d, report, err := storage.Open(s.opts, s.core.Replay)
	if errors.Is(err, storage.ErrNotExist) {
		h.budget.give()
		if made {
			return h.cfg.Dir.Missing(s.Ref.Log, s.Ref.Shard)
		}
		return nil // made at the first append
	}
	if err != nil {
		h.budget.give()
		return err
	}
	st := d.State()
	if made && st.Length == 0 {
		h.budget.give()
		return errors.Join(h.cfg.Dir.Missing(s.Ref.Log, s.Ref.Shard), d.Close())
	}
	s.log.Store(&logBox{d})
	s.core.Recovered(st.Length, st.NextOffset, st.NeedsCheckpoint)
	s.core.BeginAt(shard.LogStart{Sequence: st.StartSequence, Offset: st.StartOffset})
	if report.Tail != nil { // storage has said where in its log line
		h.metrics.repairedTails.Inc()
	}
	s.made = made
	s.remember(st.Length) // of a release that did not
	return nil
}

// recovered goes on with a log in memory that an earlier opening of this process held: a change of settings is
// no restart.
func (s *Shard) recovered(l storage.Log) error {
	if err := l.Replay(s.core.Replay); err != nil {
		return err
	}
	s.log.Store(&logBox{l})
	st := l.State()
	s.core.Recovered(st.Length, st.NextOffset, st.NeedsCheckpoint)
	return nil
}

func shardConfig(node string, l *control.Log, generation uint64) shard.Config {
	c := shard.Config{
		Node: node, Generation: generation, Rule: ackLevel(l.Ack), MinAck: ackLevel(l.MinAck), Memory: l.Storage == control.StorageMemory,
		MaxAge: l.MaxAge, MaxBytes: l.MaxBytes, SegmentBytes: l.SegmentSize(), SegmentAge: l.SegmentAge,
		DropOldest: l.OnFull == control.OnFullDropOldest, DedupWindow: l.DedupWindow,
		KeepNewest: l.Keep == control.KeepNewest, MaxKeys: int(l.MaxKeys), KeepUnsettled: l.Keep == control.KeepUnsettled,
	}
	switch l.Fsync {
	case control.FsyncInterval:
		c.Fsync = shard.FsyncInterval
	case control.FsyncNever:
		c.Fsync = shard.FsyncNever
	}
	if c.Memory {
		if c.MaxBytes <= 0 || c.MaxBytes > memoryKept {
			c.MaxBytes = memoryKept
		}
		c.SegmentBytes = min(c.SegmentBytes, max(c.MaxBytes/16, shard.MinSegmentBytes))
	}
	return c
}

func ackLevel(s string) shard.AckLevel {
	switch s {
	case control.AckNone:
		return shard.AckNone
	case control.AckLeader:
		return shard.AckLeader
	}
	return shard.AckQuorum
}
