// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

// shard is the directory of a closed log that a test damages by hand, beside the model of what it held.
type shard struct {
	t    *testing.T
	mem  *memfs.FS
	o    storage.Options
	m    *storagetest.Model
	w    *storagetest.Writer
	logs *logged
}

// newShard writes segments of so many batches each, every record of this size. Each batch says, as a leader's do, that
// all before it were flushed; all are.
func newShard(t *testing.T, segments, batches, size int) *shard {
	t.Helper()
	s := &shard{t: t, mem: memfs.New(nil), m: &storagetest.Model{Whole: true}, w: storagetest.NewWriter(), logs: &logged{}}
	s.o = options(s.mem, "/data")
	l := create(t, s.o)
	for range segments {
		s.add(l, s.w.Checkpoint(1, 60)...)
		for range batches {
			s.add(l, s.w.Record(size))
		}
	}
	s.close(l)
	return s
}

func (s *shard) add(l *storage.Disk, batches ...batch.Batch) {
	s.t.Helper()
	if err := l.Append(batches...); err != nil {
		s.t.Fatal(err)
	}
	s.m.Append(batches...)
	flushed, err := l.Flush()
	if err != nil {
		s.t.Fatal(err)
	}
	s.m.Flushed, s.w.Flushed = flushed, flushed
}

func (s *shard) close(l *storage.Disk) {
	s.t.Helper()
	if err := l.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// copy returns an equal shard to damage.
func (s *shard) copy() *shard {
	c := *s
	w := *s.w
	c.mem, c.m, c.w, c.logs = s.mem.Crash(nil), s.m.Clone(), &w, &logged{}
	c.o.FS, c.o.Logger = c.mem, slog.New(c.logs)
	for name, data := range s.files() { // what was not flushed, too
		c.put(name, data)
	}
	return &c
}

func (s *shard) path(name string) string { return path.Join(s.o.Dir, name) }

func (s *shard) names(suffix string) []string {
	names, err := s.mem.List(s.o.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, suffix) })
}

// segment returns the name of the i-th segment; negative counts from the newest.
func (s *shard) segment(i int) string {
	names := s.names(segment.Suffix)
	if i < 0 {
		i += len(names)
	}
	return names[i]
}

func (s *shard) get(name string) []byte {
	s.t.Helper()
	data, err := vfs.ReadFile(s.mem, s.path(name), 1<<30)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

func (s *shard) put(name string, data []byte) {
	s.t.Helper()
	if err := vfs.WriteFile(s.mem, s.path(name), data); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shard) remove(name string) {
	s.t.Helper()
	if err := s.mem.Remove(s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shard) files() map[string][]byte {
	all := map[string][]byte{}
	for _, name := range s.names("") {
		all[name] = s.get(name)
	}
	return all
}

// at returns where the batch of a sequence lies.
func (s *shard) at(seq uint64) (name string, from, to int) {
	i := len(s.m.Bases) - 1
	for s.m.Bases[i] > seq {
		i--
	}
	from = segment.HeaderSize
	for n := s.m.Bases[i]; n < seq; n++ {
		from += len(s.m.At(n))
	}
	return segment.Name(s.m.Bases[i]), from, from + len(s.m.At(seq))
}

// sound opens the shard, compares it with its model, lets it go on and opens it again.
func (s *shard) sound() storage.Report {
	s.t.Helper()
	l, report := open(s.t, s.o)
	s.compare(l)
	s.w.Sequence, s.w.Offset, s.w.Flushed = s.m.Length(), s.m.NextOffset(), s.m.Length()
	s.add(l, s.w.Record(77))
	s.compare(l)
	s.close(l)
	l, again := open(s.t, s.o)
	if again.Tail != nil || len(again.Dropped) > 0 {
		s.t.Fatalf("opened again it is repaired again: %+v", again)
	}
	s.compare(l)
	s.close(l)
	return report
}

func (s *shard) compare(l *storage.Disk) {
	s.t.Helper()
	if err := s.m.Compare(l); err != nil {
		s.t.Fatal(err)
	}
	for offset := s.m.StartOffset(); offset <= s.m.NextOffset(); offset += 1 + s.m.NextOffset()/7 {
		if got, err := l.FindOffset(offset); err != nil || got != s.m.FindOffset(offset) {
			s.t.Fatalf("find offset %d: %d, %v, want %d", offset, got, err, s.m.FindOffset(offset))
		}
	}
	for i := 0; i < len(s.m.Batches); i += 1 + len(s.m.Batches)/7 {
		us := s.m.Batches[i].AppendTime()
		if got, err := l.FindTime(us); err != nil || got != s.m.FindTime(us) {
			s.t.Fatalf("find time %d: %d, %v, want %d", us, got, err, s.m.FindTime(us))
		}
	}
}

// unchanged holds that no segment differs from what it was.
func (s *shard) unchanged(before map[string][]byte) {
	s.t.Helper()
	after := s.files()
	if !maps.EqualFunc(before, after, bytes.Equal) {
		s.t.Fatalf("files have changed: %q, were %q", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// logged collects log lines as text.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (h *logged) Enabled(context.Context, slog.Level) bool { return true }
func (h *logged) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logged) WithGroup(string) slog.Handler            { return h }

func (h *logged) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	h.lines = append(h.lines, line)
	return nil
}

// with returns the lines that hold all of these.
func (h *logged) with(parts ...string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []string
	for _, line := range h.lines {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, line)
		}
	}
	return found
}
