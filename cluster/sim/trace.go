// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"
)

const kept = 60 // lines that a failure shows

// trace is all that happened, as a hash, and the end of it as lines.
type trace struct {
	h     uint64
	each  func(string)
	lines []string
	next  int
}

func newTrace(each func(string)) *trace { return &trace{h: fnv.New64a().Sum64(), each: each} }

const prime = 1099511628211 // of FNV-1a

func (t *trace) add(p []byte) {
	for _, b := range p {
		t.h = (t.h ^ uint64(b)) * prime
	}
}

func (t *trace) word(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	t.add(b[:])
}

// note takes a step into the hash.
func (t *trace) note(at time.Duration, kind string) {
	t.word(uint64(at))
	t.add([]byte(kind))
}

// logf takes a line into the hash, and keeps it for a while.
func (t *trace) logf(at time.Duration, format string, args ...any) {
	line := fmt.Sprintf("%12s  ", at) + fmt.Sprintf(format, args...)
	t.add([]byte(line))
	if t.each != nil {
		t.each(line)
	}
	if len(t.lines) < kept {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % kept
}

func (t *trace) debugf(at time.Duration, format string, args ...any) {
	if t.each != nil {
		t.each(fmt.Sprintf("%12s  ", at) + fmt.Sprintf(format, args...))
	}
}

func (t *trace) sum() uint64 { return t.h }

func (t *trace) last() []string {
	return append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
}

// lines is the node's log, for who traces.
type lines struct{ w *world }

func (l lines) Write(p []byte) (int, error) {
	l.w.debugf("node: %s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// logger is the node's.
func (w *world) logger() *slog.Logger {
	if w.trace.each == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(lines{w}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func stack() string { return string(debug.Stack()) }
