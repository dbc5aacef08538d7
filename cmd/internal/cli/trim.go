// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/arg"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
)

type trimFlags struct {
	before   string
	shard    uint32
	oneShard bool
}

func (a *app) trimCommand() *cobra.Command {
	var f trimFlags
	cmd := &cobra.Command{
		Use:   "trim STREAM --before OFFSET|TIME",
		Short: "Give up a stream's oldest records, for good",
		Long: `Give up the records of a stream before an offset (a whole number; needs --shard when the stream has
several), before a time such as 2026-01-31T12:00:00Z, before a duration back from now such as -7d, or
before latest: all that is there.

Text shows where each shard begins now, raw the offset alone, JSON one object a shard. Offsets are never
used again: the next record follows the last one, also when none is left. Disk space comes back by whole
segments. Trimming again changes nothing, and nothing brings a record back.`,
		Example: `  margay trim orders --before -7d
  margay trim orders --before 120000 --shard 2`,
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.oneShard = cmd.Flags().Changed("shard")
			return a.trim(cmd.Context(), args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.before, "before", "", "the first record to keep: OFFSET, TIME or latest")
	flags.Uint32Var(&f.shard, "shard", 0, "trim this shard only")
	complete(cmd, "before", "latest")
	return cmd
}

// trimmedView is a trimmed shard in JSON.
type trimmedView struct {
	Stream   string `json:"stream"`
	Shard    uint32 `json:"shard"`
	Earliest uint64 `json:"earliest"`
}

func (a *app) trim(ctx context.Context, stream string, f *trimFlags) error {
	if f.before == "" {
		return exit.Misuse("--before is missing: name the first record to keep")
	}
	start, err := arg.ParseStart(f.before, time.Now())
	if err != nil || start.Kind == arg.Earliest {
		if err == nil {
			err = errors.New("nothing lies before the earliest record")
		}
		return exit.Misuse("--before: %w", err)
	}
	c, full, name, err := a.connectTo(ctx, stream)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	points, err := f.points(ctx, c, full, start)
	if err != nil {
		return aboutTrim(err, name)
	}
	for _, p := range points {
		done, err := c.Trim(ctx, full, p)
		if e := a.printTrimmed(full, done); e != nil {
			return e
		}
		if err != nil {
			return aboutTrim(err, name)
		}
	}
	return nil
}

// points are the trims that the flags ask for.
func (f *trimFlags) points(ctx context.Context, c *client.Client, stream string, start arg.Start) ([]client.TrimPoint, error) {
	var one []uint32
	if f.oneShard {
		one = []uint32{f.shard}
	}
	if start.Kind == arg.AtTime {
		return []client.TrimPoint{client.TrimBeforeTime(start.Time, one...)}, nil
	}
	shards, err := c.Offsets(ctx, stream)
	if err != nil {
		return nil, err
	}
	if start.Kind == arg.AtOffset && len(shards) > 1 && !f.oneShard {
		return nil, exit.Misuse("--before %d: the stream has %d shards, each with offsets of its own: name one with --shard", start.Offset, len(shards))
	}
	var points []client.TrimPoint
	for _, s := range shards {
		switch {
		case f.oneShard && s.Shard != f.shard:
		case start.Kind == arg.AtOffset:
			points = append(points, client.TrimBeforeOffset(s.Shard, start.Offset))
		default:
			points = append(points, client.TrimBeforeOffset(s.Shard, s.Latest))
		}
	}
	if len(points) == 0 {
		return nil, noShard(f.shard, len(shards))
	}
	return points, nil
}

func (a *app) printTrimmed(stream string, done []client.Trimmed) error {
	for _, d := range done {
		var err error
		switch a.Format() {
		case output.JSON:
			err = a.JSON(trimmedView{stream, d.Shard, d.Earliest})
		case output.Raw:
			err = a.Raw(strconv.AppendUint(nil, d.Earliest, 10))
		case output.Text:
			err = a.Line("shard %d begins at offset %d", d.Shard, d.Earliest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aboutTrim names the stream, and the remedy for an offset that is not there.
func aboutTrim(err error, name string) error {
	if own, ok := errors.AsType[*exit.Error](err); ok {
		return own
	}
	if errors.Is(err, code.OutOfRange) {
		return &exit.Error{
			Err: fmt.Errorf("stream %s: %w", name, err), Data: "nothing was trimmed",
			Do: "`margay stream info " + name + "` shows which offsets are there; --before latest gives up all of them",
		}
	}
	return aboutStream(err, name)
}
