// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"margay.dev/storage/vfs"
)

// CutNoteName is the file that notes a truncation under way. A file system may write zeros behind the new end of a file to
// the disk before the new size is there. After a power cut between the two the file has its old size, zeros where the cut
// was to be, and behind them sound batches whose word is that what the zeros replaced had been flushed: the looks of
// damage. The note says that it is none, and opening completes the cut. A cut of what was never flushed needs none, since
// no batch says that it was.
const CutNoteName = "cut.json"

type cutNote struct {
	Format int    `json:"format"`
	Length uint64 `json:"length"`
}

const (
	cutNoteFormat   = 1
	maxCutNoteBytes = 1 << 10
)

func writeCutNote(fsys vfs.FS, dir string, length uint64) error {
	b, err := json.Marshal(cutNote{Format: cutNoteFormat, Length: length})
	if err != nil {
		return err
	}
	return vfs.WriteFile(fsys, path.Join(dir, CutNoteName), append(b, '\n'))
}

// ReadCutNote returns the length that a truncation under way cuts to, nil when there is none.
func ReadCutNote(fsys vfs.FS, dir string) (*uint64, error) {
	name := path.Join(dir, CutNoteName)
	b, err := vfs.ReadFile(fsys, name, maxCutNoteBytes)
	if errors.Is(err, ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var n cutNote
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, &CorruptError{File: name, Reason: err.Error()}
	}
	if n.Format != cutNoteFormat {
		return nil, fmt.Errorf("read %s: format %d: %w", name, n.Format, ErrNewerFormat)
	}
	return &n.Length, nil
}

// removeCutNote ends a truncation. A note that came back after a power cut would cut what was appended since, so the
// removal is durable before anything is; when that fails the log takes no more writes.
func (l *Disk) removeCutNote() error {
	err := l.o.FS.Remove(path.Join(l.o.Dir, CutNoteName))
	if err == nil {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	if err != nil {
		return l.poisonWith(fmt.Errorf("remove %s: %w", CutNoteName, err))
	}
	return nil
}
