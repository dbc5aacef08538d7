// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/storage/inspect"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

func (a *app) logDumpCommand() *cobra.Command {
	var withControl bool
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print every sound record of each shard, also those behind damage",
		Long: `Print every sound record, in the order of the files. A cache's newest records are written again before an
old segment goes: such a record is printed with the offset it was given first, and marked as carried; one that ended a key's
time to live is marked as expired. With --control also the control batches: openings, checkpoints and what else the log
remembers in itself. Exits 4 when there was damage, after everything that could be read.`,
		Example: `  margay log dump DATA/shards/ID/0 --output json
  margay log dump DATA/shards/ID/0 --control`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			sound := true
			err := a.eachShard(args[0], func(dir string) error {
				// The shard's number stands in the header of its files; a quick look is enough to learn it.
				quick, err := inspect.Read(vfs.OS(), dir, inspect.Options{Quick: true})
				if err != nil {
					return err
				}
				d := dumper{app: a, control: withControl, shard: quick.Shard}
				r, err := a.readWhole(dir, &inspect.Options{Visit: d.visit})
				if err != nil {
					return err
				}
				for _, p := range r.Problems {
					if p.Severity >= inspect.Damage {
						a.Warn("%s", p)
					}
				}
				sound = sound && r.Sound
				return nil
			})
			if err != nil || sound {
				return err
			}
			return &exit.Error{
				Err: errors.New("some of the data is damaged"), Code: exit.Refused,
				Data: "what is above is all that can be read; nothing was changed",
				Do:   "`margay log verify` says what is wrong, `margay log repair` what giving it up would cost",
			}
		},
	}
	cmd.Flags().BoolVar(&withControl, "control", false, "print control batches too")
	return cmd
}

type dumper struct {
	*app

	control bool
	shard   uint32
}

func (d dumper) visit(file string, pos int64, b batch.Batch) error {
	if b.IsControl() {
		if !d.control {
			return nil
		}
		return d.printControl(file, pos, b)
	}
	records := b.Records()
	var rec batch.Record
	for {
		ok, err := records.Next(&rec)
		if err != nil {
			d.Warn("%s at byte %d, sequence %d: %v", file, pos, b.Sequence(), err)
			return nil // the batch's checksum is good, so whoever wrote it wrote this: show the others
		}
		if !ok {
			return nil
		}
		if err := d.printStored(b, records, &rec); err != nil {
			return err
		}
	}
}

// storedView is a record as it lies in the log, in JSON.
type storedView struct {
	recordView
	Sequence uint64 `json:"sequence"`
	// Carried: offset, generation and append time are those of the first time.
	Carried bool `json:"carried,omitempty"`
	Expired bool `json:"expired,omitempty"`
	// Settlement of its batch: what a group acknowledged by it.
	Settlement *batch.Settlement `json:"settlement,omitempty"`
}

func (d dumper) printStored(b batch.Batch, at *batch.Reader, rec *batch.Record) error {
	view := client.Record{
		Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Timestamp: time.UnixMicro(rec.Timestamp),
		Delay: rec.Delay, TTL: rec.TTL, Shard: d.shard, Offset: at.Offset(), Generation: at.Generation(),
		AppendTime: time.UnixMicro(at.AppendTime()),
	}
	switch d.Format() {
	case output.JSON:
		out := storedView{recordView: viewRecord(&view), Sequence: b.Sequence(), Carried: b.IsCarried(), Expired: b.IsExpired()}
		if s, ok, err := b.Settlement(); err == nil && ok {
			out.Settlement = &s
		}
		return d.JSON(out)
	case output.Raw:
		return d.printRecord(&view)
	case output.Text: // for a person, below
	}
	mark := ""
	switch {
	case b.IsCarried():
		mark = "\t" + d.Dim(fmt.Sprintf("(carried to sequence %d)", b.Sequence()))
	case b.IsExpired():
		mark = "\t" + d.Dim("(expired)")
	case b.HasSettlement():
		if s, _, err := b.Settlement(); err == nil {
			mark = "\t" + d.Dim(fmt.Sprintf("(settles %d of group %016x)", len(s.Tokens), s.Group))
		}
	}
	return d.Line("%s%s", textRecord(d.app, &view), mark)
}

// controlView is a control batch in JSON.
type controlView struct {
	Control    []entryView `json:"control"`
	Sequence   uint64      `json:"sequence"`
	NextOffset uint64      `json:"next_offset"`
	Generation uint64      `json:"generation"`
	AppendTime string      `json:"append_time"`
	Checkpoint bool        `json:"checkpoint"`
	File       string      `json:"file"`
	Position   int64       `json:"position"`
}

type entryView struct {
	Type  string `json:"type"`
	Entry any    `json:"entry"`
}

func (d dumper) printControl(file string, pos int64, b batch.Batch) error {
	entries, err := b.Entries()
	if err != nil {
		d.Warn("%s at byte %d, sequence %d: %v", file, pos, b.Sequence(), err)
		return nil // as in visit
	}
	views := make([]entryView, len(entries))
	for i, e := range entries {
		views[i] = entryView{entryName(e), e}
	}
	switch d.Format() {
	case output.JSON:
		return d.JSON(controlView{
			Control: views, Sequence: b.Sequence(), NextOffset: b.BaseOffset(), Generation: b.Generation(),
			AppendTime: stamp(b.AppendTime()), Checkpoint: b.IsCheckpoint(), File: file, Position: pos,
		})
	case output.Raw:
		return nil // a control batch has no value
	case output.Text: // for a person, below
	}
	for _, v := range views {
		if err := d.Line("%s", d.Dim(fmt.Sprintf("%d/- sequence %d %s %+v", d.shard, b.Sequence(), v.Type, v.Entry))); err != nil {
			return err
		}
	}
	return nil
}

func entryName(e batch.Entry) string {
	switch e.(type) {
	case batch.Opening:
		return "opening"
	case batch.LogStart:
		return "log_start"
	case batch.CheckpointPart:
		return "checkpoint_part"
	case batch.Producer:
		return "producer"
	case batch.Generations:
		return "generations"
	case batch.Cursor:
		return "cursor"
	case batch.Dedup:
		return "dedup"
	case batch.Last:
		return "last"
	case batch.Group:
		return "group"
	case batch.Settled:
		return "settled"
	case batch.Attempt:
		return "attempt"
	case batch.Dead:
		return "dead"
	case batch.Command:
		return "command"
	}
	return fmt.Sprintf("type_%d", e.Type())
}

// stamp writes a time of the log, "" for none.
func stamp(us int64) string {
	if us == 0 {
		return ""
	}
	return time.UnixMicro(us).UTC().Format(time.RFC3339Nano)
}
