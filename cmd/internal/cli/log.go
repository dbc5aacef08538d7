// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/storage"
	"margay.dev/storage/inspect"
	"margay.dev/storage/vfs"
	"margay.dev/wire/control"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Read and repair a node's files while it does not run",
		Long: `DIR is a node's data directory, or the directory of one log or one shard below it. Everything but
repair reads only; a node that runs may be read too, with its last batches appearing half written.`,
		Example: `  margay log verify ~/.local/share/margay
  margay log dump DATA/shards/ID/0 --output json`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.logInspectCommand(), a.logVerifyCommand(), a.logDumpCommand(), a.logRepairCommand())
	return cmd
}

func (a *app) logInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect DIR",
		Short: "Show the segments of each shard, as quickly as a start does",
		Example: `  margay log inspect ~/.local/share/margay
  margay log inspect DATA/shards/ID/0 --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.eachShard(args[0], func(dir string) error {
				r, err := inspect.Read(vfs.OS(), dir, inspect.Options{Quick: true})
				if err != nil {
					return err
				}
				return a.printReport(r, true)
			})
		},
	}
}

func (a *app) logVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read every byte of each shard and say what is wrong and what a repair would cut",
		Long: `Read every byte of each shard. Exits 0 when all is sound; what a start repairs by itself (a torn tail, a
missing index) is named and counts as sound. Exits 4 when flushed data is damaged.`,
		Example: `  margay log verify ~/.local/share/margay
  margay log verify DATA/shards/ID/0 --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			damaged := 0
			err := a.eachShard(args[0], func(dir string) error {
				r, err := a.readWhole(dir, nil)
				if err != nil {
					return err
				}
				if !r.Sound {
					damaged++
				}
				return a.printReport(r, false)
			})
			if err != nil || damaged == 0 {
				return err
			}
			return &exit.Error{
				Err:  fmt.Errorf("%s damaged or of another release", count(damaged, "shard")),
				Code: exit.Refused,
				Data: "nothing was changed; the broker does not open these shards, all others are served",
				Do:   "restore them from a copy, or see what giving up the damage would cost: `margay log repair " + quoteForShell(args[0]) + "`",
			}
		},
	}
}

// eachShard calls do for the shards at or below a directory.
func (a *app) eachShard(dir string, do func(dir string) error) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return exit.Misuse("%w", err)
	}
	// A link would hide the data directory above the shard, and with it the lock of a node that runs.
	if target, err := filepath.EvalSymlinks(abs); err == nil {
		abs = target
	}
	dirs, err := inspect.Find(vfs.OS(), abs)
	if errors.Is(err, storage.ErrNotExist) {
		return &exit.Error{Err: err, Code: exit.NotThere, Do: "name a node's data directory, or one of a shard below it"}
	}
	if err != nil {
		return err
	}
	for _, one := range dirs {
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// readWhole reads a shard with progress on a terminal.
func (a *app) readWhole(dir string, o *inspect.Options) (*inspect.Report, error) {
	var done, total atomic.Int64
	if o == nil {
		o = &inspect.Options{}
	}
	o.Progress = func(d, t int64) { done.Store(d); total.Store(t) }
	stop := a.Progress(func() string {
		return fmt.Sprintf("%s: %d of %d MiB", dir, done.Load()>>20, total.Load()>>20)
	})
	defer stop()
	return inspect.Read(vfs.OS(), dir, *o)
}

// shardView is a shard's directory in JSON.
type shardView struct {
	Dir      string        `json:"dir"`
	Log      string        `json:"log"`
	Shard    uint32        `json:"shard"`
	Sound    bool          `json:"sound"`
	Segments []segmentView `json:"segments"`
	Gaps     []storage.Gap `json:"gaps"`
	Problems []problemView `json:"problems"`
}

type segmentView struct {
	File       string `json:"file"`
	Sequence   uint64 `json:"sequence"`
	NextSeq    uint64 `json:"next_sequence"`
	Offset     uint64 `json:"offset"`
	NextOffset uint64 `json:"next_offset"`
	Generation uint64 `json:"generation"`
	FirstTime  string `json:"first_time,omitempty"`
	LastTime   string `json:"last_time,omitempty"`
	Bytes      int64  `json:"bytes"`
	Valid      int64  `json:"valid_bytes"`
	Index      string `json:"index"`
	// Only of a segment that was read as a whole.
	Records *uint64 `json:"records,omitempty"`
	Expired *uint64 `json:"expired,omitempty"`
	Carried *uint64 `json:"carried,omitempty"`
}

type problemView struct {
	Severity string `json:"severity"`
	File     string `json:"file"`
	Position int64  `json:"position"`
	Sequence uint64 `json:"sequence"`
	Offset   uint64 `json:"offset"`
	Reason   string `json:"reason"`
	Remedy   string `json:"remedy"`
}

func viewReport(r *inspect.Report) shardView {
	v := shardView{
		Dir: r.Dir, Log: r.ID.String(), Shard: r.Shard, Sound: r.Sound,
		Segments: []segmentView{}, Gaps: append([]storage.Gap{}, r.Gaps...), Problems: []problemView{},
	}
	for _, s := range r.Segments {
		view := segmentView{
			File: s.File, Sequence: s.Summary.Base, NextSeq: s.Summary.Next,
			Offset: s.Summary.BaseOffset, NextOffset: s.Summary.NextOffset, Generation: s.Summary.Generation,
			FirstTime: stamp(s.Summary.FirstTime), LastTime: stamp(s.Summary.LastTime),
			Bytes: s.Bytes, Valid: s.Summary.Size, Index: s.Index,
		}
		if s.Read {
			view.Records, view.Expired, view.Carried = &s.Records, &s.Expired, &s.Carried
		}
		v.Segments = append(v.Segments, view)
	}
	for _, p := range r.Problems {
		v.Problems = append(v.Problems, problemView{
			Severity: p.Severity.String(), File: p.File, Position: p.Pos, Sequence: p.Sequence, Offset: p.Offset,
			Reason: p.Reason, Remedy: p.Remedy,
		})
	}
	return v
}

func (a *app) printReport(r *inspect.Report, segments bool) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewReport(r))
	case output.Raw:
		return a.Raw([]byte(r.Dir))
	case output.Text: // for a person, below
	}
	state := a.Good("sound")
	if !r.Sound {
		state = a.Bad("damaged")
	}
	err := a.Line("%s: %s\n  log %s, shard %d: %s", r.Dir, state, r.ID, r.Shard, extent(r))
	if err != nil {
		return err
	}
	if segments {
		if err := a.printSegments(r.Segments); err != nil {
			return err
		}
	}
	for _, g := range r.Gaps {
		if err := a.Line("  gap: offsets %d to %d were given up by a repair (%s)", g.FromOffset, g.ToOffset-1, g.Reason); err != nil {
			return err
		}
	}
	for _, p := range r.Problems {
		if err := a.Line("  %s", p); err != nil {
			return err
		}
	}
	return nil
}

// extent is what a shard holds, in one line.
func extent(r *inspect.Report) string {
	if len(r.Segments) == 0 {
		return "no segments"
	}
	var (
		bytes            int64
		expired, carried uint64
	)
	for _, s := range r.Segments {
		bytes += s.Bytes
		expired += s.Expired
		carried += s.Carried
	}
	cache := ""
	if expired > 0 || carried > 0 { // a quick look does not know them
		cache = fmt.Sprintf("; %d expired and %d carried records", expired, carried)
	}
	first, last := r.Segments[0].Summary, r.Segments[len(r.Segments)-1].Summary
	return fmt.Sprintf("offsets %d to %d, sequences %d to %d, ends exclusive; %s, %s%s",
		first.BaseOffset, last.NextOffset, first.Base, last.Next, count(len(r.Segments), "segment"), roughly(bytes), cache)
}

// roughly writes a size the way a person reads it.
func roughly(n int64) string {
	if n < 1<<20 {
		return control.FormatBytes(n) + " B"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

func (a *app) printSegments(segments []inspect.Segment) error {
	rows := make([][]string, 0, len(segments))
	for _, s := range segments {
		rows = append(rows, []string{
			"  " + s.File,
			fmt.Sprintf("%d-%d", s.Summary.Base, s.Summary.Next),
			fmt.Sprintf("%d-%d", s.Summary.BaseOffset, s.Summary.NextOffset),
			strconv.FormatUint(s.Summary.Generation, 10),
			roughly(s.Bytes), s.Index, stamp(s.Summary.LastTime),
		})
	}
	return a.Table([]string{"  SEGMENT", "SEQUENCES", "OFFSETS", "GENERATION", "SIZE", "INDEX", "LAST APPEND"}, rows)
}
