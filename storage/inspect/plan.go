// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	"margay.dev/storage"
	"margay.dev/storage/recovery"
	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// Loss is a range that a repair gives up.
type Loss struct {
	FromSequence, ToSequence uint64 // ToSequence and ToOffset are exclusive
	FromOffset, ToOffset     uint64
	// AtMost says that the end is a bound: what lay there cannot be read, and no more than this can have fit.
	AtMost bool
	Reason string
}

func (l Loss) String() string {
	most := ""
	if l.AtMost {
		most = "at most "
	}
	return fmt.Sprintf("%soffsets %d to %d, sequences %d to %d (each end exclusive): %s",
		most, l.FromOffset, l.ToOffset, l.FromSequence, l.ToSequence, l.Reason)
}

// plan is what a repair is going to do.
type plan struct {
	changes []change
	saves   []save
	gaps    []storage.Gap // all, the old ones too
	losses  []Loss
}

// change is what becomes of a segment file.
type change struct {
	f      *file
	keep   int64 // bytes that stay; 0 removes the file
	header bool  // its header is written again
}

// save is a run behind damage that becomes a segment of its own, byte for byte under a new header.
type save struct {
	f *file
	r run
}

// piece is a run that stays, in the order of the log.
type piece struct {
	run
	f *file
}

// plan keeps every sound batch that has its place: the run of each segment up to its damage, and of sealed segments what
// lies behind it. Where two pieces do not meet there will be a gap. The log can only go on behind a checkpoint that it can
// load, so pieces at the end without one are given up.
func (s *survey) plan() (*plan, error) {
	if !s.known {
		return nil, errors.New("no header and no directory name tells which log this is")
	}
	for _, p := range s.report().Problems {
		if p.Severity == Unknown {
			return nil, fmt.Errorf("%s: %s; %s", p.File, p.Reason, p.Remedy)
		}
	}
	last := s.last()
	pieces := s.pieces(last)
	lost := last != nil && last.verdict.Action == recovery.Refuse
	if lost && last.scan.HeaderErr != nil && last.scan.Damage == nil && last.scan.Checkpoint != 0 {
		lost = false // only its header is damaged, and that is written again
	}
	for len(pieces) > 0 && !pieces[len(pieces)-1].checkpoint {
		pieces, lost = pieces[:len(pieces)-1], true
	}
	p := &plan{}
	p.fill(s, pieces, lost)
	return p, nil
}

func (s *survey) pieces(last *file) []piece {
	var out []piece
	for _, f := range s.found {
		if f.unborn {
			continue
		}
		x := f.scan.Summary
		if f.scan.Cursor.Sequence > f.base {
			out = append(out, piece{f: f, run: run{
				from: x.Base, to: x.Next, fromOff: x.BaseOffset, toOff: x.NextOffset, pos: segment.HeaderSize, end: x.Size,
				generation: x.Generation, time: x.LastTime, checkpoint: f.scan.Checkpoint != 0 || !f.whole, main: true,
			}})
		}
		for _, r := range f.runs {
			if f != last && !s.covered(f, r) {
				out = append(out, piece{f: f, run: r})
			}
		}
	}
	slices.SortFunc(out, func(a, b piece) int { return cmp.Compare(a.from, b.from) })
	return out
}

// covered reports whether another file holds batches of the run: one that a repair before this one saved already.
func (s *survey) covered(f *file, r run) bool {
	return slices.ContainsFunc(s.found, func(g *file) bool {
		return g != f && g.base < r.to && r.from < g.scan.Cursor.Sequence
	})
}

// fill turns pieces into changes of files and gaps between them.
func (p *plan) fill(s *survey, pieces []piece, lost bool) {
	kept := map[*file]int64{}
	for _, x := range pieces {
		if x.main {
			kept[x.f] = x.end
		} else {
			p.saves = append(p.saves, save{x.f, x.run})
		}
	}
	for _, f := range s.found {
		keep, damaged := kept[f], f.verdict.Action == recovery.Refuse
		switch {
		case f.unborn && !lost:
		case f.unborn, keep == 0:
			p.changes = append(p.changes, change{f: f})
		case damaged && keep < f.size, f.scan.HeaderErr != nil:
			p.changes = append(p.changes, change{f: f, keep: keep, header: f.scan.HeaderErr != nil})
		}
	}
	for i := 1; i < len(pieces); i++ {
		a, b := pieces[i-1], pieces[i]
		if a.to != b.from {
			p.gap(s, storage.Gap{
				FromSequence: a.to, ToSequence: b.from, FromOffset: a.toOff, ToOffset: b.fromOff, Generation: a.generation, AppendTime: a.time,
			}, false)
		}
	}
	if lost {
		from := uint64(0)
		if n := len(pieces); n > 0 {
			from = pieces[n-1].f.base
		}
		g := s.end(from)
		if n := len(pieces); n > 0 {
			g.FromSequence, g.FromOffset = pieces[n-1].to, pieces[n-1].toOff
		} else if len(s.found) > 0 {
			g.FromSequence, g.FromOffset = s.found[0].base, s.found[0].scan.Summary.BaseOffset
		}
		p.gap(s, g, true)
	}
}

// gap notes a gap, unless an earlier repair did. atMost says that it is the one behind everything.
func (p *plan) gap(s *survey, g storage.Gap, atMost bool) {
	if p.gaps == nil {
		p.gaps = append([]storage.Gap{}, s.gaps...)
	}
	for i, old := range p.gaps {
		if old.FromSequence != g.FromSequence {
			continue
		}
		// Of the gap at the end, the first repair knew best how far it must reach, unless the log went on behind it since.
		if old.ToSequence == g.ToSequence || atMost && !slices.ContainsFunc(s.found, func(f *file) bool { return f.base >= old.ToSequence }) {
			return
		}
		p.gaps = slices.Delete(p.gaps, i, i+1)
		break
	}
	g.Reason = "damage given up by an operator"
	for _, problem := range s.report().Problems {
		if problem.Severity == Damage && problem.Sequence >= g.FromSequence && problem.Sequence < g.ToSequence {
			g.Reason = problem.Reason
			break
		}
	}
	p.gaps = append(p.gaps, g)
	slices.SortFunc(p.gaps, func(a, b storage.Gap) int { return cmp.Compare(a.FromSequence, b.FromSequence) })
	p.losses = append(p.losses, Loss{
		FromSequence: g.FromSequence, ToSequence: g.ToSequence, FromOffset: g.FromOffset, ToOffset: g.ToOffset,
		AtMost: atMost, Reason: g.Reason,
	})
}

// minRecordMeta is the least that a record takes in a batch: flags and timestamp delta (docs/formats/batch.md).
const minRecordMeta = 2

// end returns a gap whose end lies behind everything that ever had a sequence or an offset here: behind all that can be
// read, and behind all that can have fit into the bytes that cannot, of the segments from the one with this base on.
func (s *survey) end(from uint64) storage.Gap {
	var g storage.Gap
	for _, old := range s.gaps {
		g.ToSequence, g.ToOffset = max(g.ToSequence, old.ToSequence), max(g.ToOffset, old.ToOffset)
		g.Generation, g.AppendTime = max(g.Generation, old.Generation), max(g.AppendTime, old.AppendTime)
	}
	for _, f := range s.found {
		x, y := f.scan.Summary, f.scan.Beyond
		g.ToSequence, g.ToOffset = max(g.ToSequence, f.base, x.Next, y.Next, y.Flushed), max(g.ToOffset, x.NextOffset, y.Offset)
		g.Generation, g.AppendTime = max(g.Generation, x.Generation), max(g.AppendTime, x.LastTime)
		for _, r := range f.runs {
			g.Generation, g.AppendTime = max(g.Generation, r.generation), max(g.AppendTime, r.time)
		}
	}
	unread := int64(0)
	for _, f := range s.found {
		end := f.scan.Summary.Size
		if n := len(f.runs); n > 0 {
			end = f.runs[n-1].end
		}
		if f.base >= from && f.whole && f.size > end {
			unread += f.size - end
		}
	}
	g.ToSequence += uint64(unread)/batch.HeaderSize + 1
	g.ToOffset += uint64(unread) / minRecordMeta
	return g
}

func (s *survey) path(base uint64) string { return path.Join(s.dir, segment.Name(base)) }
