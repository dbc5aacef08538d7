// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) streamInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info NAME",
		Short: "Show a stream's settings, and which offsets each shard holds",
		Example: `  margay stream info orders
  margay stream info shop/orders --output json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			var s control.Stream
			err := a.withStream(args[0], func(c *control.Client, tenant, namespace, name string) (err error) {
				s, err = c.Stream(cmd.Context(), tenant, namespace, name)
				return err
			})
			if err != nil {
				return aboutStream(err, args[0])
			}
			return a.printInfo(s, a.offsets(cmd.Context(), s))
		},
	}
}

// offsets asks the broker what each shard holds. The settings are worth showing without.
func (a *app) offsets(ctx context.Context, s control.Stream) []client.Offsets {
	t, err := a.target()
	if err != nil || len(t.Addresses) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	c, err := a.connect(ctx, t)
	if err != nil {
		a.Warn("no offsets: %s", message(err))
		return nil
	}
	defer c.Close()
	all, err := c.Offsets(ctx, control.FullName(s.Tenant, s.Namespace, s.Name))
	if err != nil {
		a.Warn("no offsets: %s", message(err))
		return nil
	}
	return all
}

// infoView is a stream and what it holds, in JSON.
type infoView struct {
	control.Stream

	Offsets []offsetsView `json:"offsets,omitempty"`
}

type offsetsView struct {
	Shard      uint32    `json:"shard"`
	Generation uint64    `json:"generation"`
	Earliest   uint64    `json:"earliest"`
	Latest     uint64    `json:"latest"` // of the next record
	AppendTime time.Time `json:"append_time,omitzero"`
}

func (a *app) printInfo(s control.Stream, offsets []client.Offsets) error {
	if a.Format() == output.JSON {
		v := infoView{Stream: s}
		for _, o := range offsets {
			v.Offsets = append(v.Offsets, offsetsView{o.Shard, o.Generation, o.Earliest, o.Latest, utc(o.AppendTime)})
		}
		return a.JSON(v)
	}
	if err := a.printStream(s); err != nil || a.Format() == output.Raw {
		return err
	}
	var rows [][]string
	for _, o := range offsets {
		last := "never"
		if !o.AppendTime.IsZero() {
			last = o.AppendTime.Local().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			"shard " + strconv.FormatUint(uint64(o.Shard), 10),
			strconv.FormatUint(o.Latest-o.Earliest, 10) + " records",
			"offsets " + strconv.FormatUint(o.Earliest, 10) + " to " + strconv.FormatUint(o.Latest, 10) + " (exclusive)",
			"generation " + strconv.FormatUint(o.Generation, 10),
			"last append " + last,
		})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.Table(nil, rows)
}

func (a *app) printStream(s control.Stream) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(s)
	case output.Raw:
		return a.Raw([]byte(s.Name))
	case output.Text: // for a person, below
	}
	fsync := s.Fsync
	if s.FsyncInterval != nil {
		fsync += " (" + s.FsyncInterval.String() + ")"
	}
	segment := "default"
	if s.SegmentBytes > 0 {
		segment = control.FormatBytes(s.SegmentBytes)
	}
	return a.Table(nil, [][]string{
		{"stream", control.FullName(s.Tenant, s.Namespace, s.Name)},
		{"id", s.ID},
		{"shards", strconv.Itoa(s.Shards)},
		{"replicas", strconv.Itoa(s.Replicas)},
		{"ack", s.Ack + " (at least " + s.MinAck + ")"},
		{"fsync", fsync},
		{"storage", s.Storage},
		{"max age", limit(s.MaxAge)},
		{"max bytes", limitBytes(s.MaxBytes)},
		{"on full", s.OnFull},
		{"dedup ids", "for " + s.DedupWindow.String()},
		{"segments", segment},
		{"created", s.CreatedAt.Local().Format(time.RFC3339)},
		{"version", strconv.FormatUint(s.Version, 10)},
	})
}
