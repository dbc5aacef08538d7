// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"margay.dev/storage/vfs"
)

// GapsName is the file in a shard's directory that notes what repairs gave up. It exists only after a repair.
const GapsName = "gaps.json"

// Gap is a range that a repair gave up. It lies between two segments, or behind the last one: then the next segment
// begins at its end, so that no offset is ever given twice.
type Gap struct {
	FromSequence uint64 `json:"from_sequence"`
	ToSequence   uint64 `json:"to_sequence"` // exclusive
	FromOffset   uint64 `json:"from_offset"`
	ToOffset     uint64 `json:"to_offset"`  // exclusive
	Generation   uint64 `json:"generation"` // the highest that was seen
	AppendTime   int64  `json:"append_time"`
	RepairedAt   int64  `json:"repaired_at"`
	Reason       string `json:"reason"`
	Lost         string `json:"lost"` // directory that the originals were set aside in
}

type gapsFile struct {
	Format int   `json:"format"`
	Gaps   []Gap `json:"gaps"`
}

const (
	gapsFormat   = 1
	maxGapsBytes = 1 << 20
)

// ReadGaps returns the gaps noted in a shard's directory, none when there is no note.
func ReadGaps(fsys vfs.FS, dir string) ([]Gap, error) {
	name := path.Join(dir, GapsName)
	b, err := vfs.ReadFile(fsys, name, maxGapsBytes)
	if errors.Is(err, ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f gapsFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, &CorruptError{File: name, Reason: err.Error()}
	}
	if f.Format != gapsFormat {
		return nil, fmt.Errorf("read %s: format %d: %w", name, f.Format, ErrNewerFormat)
	}
	for i, g := range f.Gaps {
		if g.ToSequence < g.FromSequence || g.ToOffset < g.FromOffset || i > 0 && g.FromSequence < f.Gaps[i-1].ToSequence {
			return nil, &CorruptError{File: name, Sequence: g.FromSequence, Offset: g.FromOffset, Reason: "gaps are not in order"}
		}
	}
	return f.Gaps, nil
}

// WriteGaps replaces the note, atomically and durably.
func WriteGaps(fsys vfs.FS, dir string, gaps []Gap) error {
	b, err := json.MarshalIndent(gapsFile{Format: gapsFormat, Gaps: gaps}, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFile(fsys, path.Join(dir, GapsName), append(b, '\n'))
}

// gapEndingAt returns the gap in front of the segment with this base.
func gapEndingAt(gaps []Gap, base uint64) (Gap, bool) {
	for _, g := range gaps {
		if g.ToSequence == base {
			return g, true
		}
	}
	return Gap{}, false
}

// gapAt explains a sequence that lies in no segment. It needs mu.
func (l *Disk) gapAt(seq uint64) error {
	for _, g := range l.gaps {
		if seq >= g.FromSequence && seq < g.ToSequence {
			return &GapError{FromSequence: g.FromSequence, ToSequence: g.ToSequence, FromOffset: g.FromOffset, ToOffset: g.ToOffset}
		}
	}
	return fmt.Errorf("sequence %d lies in no segment: %w", seq, ErrOutOfRange)
}
