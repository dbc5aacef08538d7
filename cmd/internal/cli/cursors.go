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
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
)

func (a *app) streamCursorsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cursors NAME",
		Short: "List a stream's durable subscriptions, and how far each has got",
		Long: `List the cursors of a stream: for each durable subscription and shard the offset of the next record to
read, how many records are behind that, and whether somebody has it open. One that nobody uses for 30 days
is forgotten.`,
		Example: `  margay stream cursors orders
  margay stream cursors shop/orders --output json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withCursors(cmd.Context(), args[0], a.listCursors)
		},
	}
}

func (a *app) streamCursorDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cursor-delete NAME CURSOR",
		Short: "Forget a durable subscription; whoever has it open is ended",
		Example: `  margay stream cursor-delete orders reports
  margay stream cursor-delete shop/orders reports`,
		Args:              cobra.ExactArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withCursors(cmd.Context(), args[0], func(ctx context.Context, c *client.Client, full string) error {
				return a.deleteCursor(ctx, c, full, args[1])
			})
		},
	}
}

// withCursors connects to the brokers of a stream that is there.
func (a *app) withCursors(ctx context.Context, stream string, do func(ctx context.Context, c *client.Client, full string) error) error {
	c, full, name, err := a.connectTo(ctx, stream)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	if _, err := c.Info(ctx, full); err != nil {
		return aboutStream(err, name)
	}
	return do(ctx, c, full)
}

// cursorView is a cursor in JSON.
type cursorView struct {
	Name       string    `json:"name"`
	Shard      uint32    `json:"shard"`
	Offset     uint64    `json:"offset"` // of the next record to read
	Generation uint64    `json:"generation"`
	Behind     uint64    `json:"behind"` // records that it has not read
	Held       bool      `json:"held"`
	Updated    time.Time `json:"updated"`
}

func (a *app) listCursors(ctx context.Context, c *client.Client, full string) error {
	all, err := c.Cursors(ctx, full)
	if err != nil {
		return fmt.Errorf("cursors of %s: %w", full, err)
	}
	shards, err := c.Offsets(ctx, full)
	if err != nil {
		return fmt.Errorf("offsets of %s: %w", full, err)
	}
	var rows [][]string
	for _, x := range all {
		v := cursorView{x.Name, x.Shard, x.Offset, x.Generation, 0, x.Held, utc(x.Updated)}
		if int(x.Shard) < len(shards) {
			o := shards[x.Shard]
			v.Behind = o.Latest - min(o.Latest, max(x.Offset, o.Earliest))
		}
		switch a.Format() {
		case output.JSON:
			err = a.JSON(v)
		case output.Raw:
			err = a.Raw([]byte(v.Name))
		case output.Text:
			held := "-"
			if v.Held {
				held = "open"
			}
			rows = append(rows, []string{
				v.Name, strconv.FormatUint(uint64(v.Shard), 10), strconv.FormatUint(v.Offset, 10),
				strconv.FormatUint(v.Behind, 10), held, x.Updated.Local().Format(time.DateTime),
			})
		}
		if err != nil {
			return err
		}
	}
	if len(all) == 0 && a.Format() == output.Text {
		a.Note("%s has no durable subscriptions; `margay sub STREAM --durable NAME` makes one", full)
	}
	if len(rows) == 0 {
		return nil
	}
	return a.Table([]string{"CURSOR", "SHARD", "OFFSET", "BEHIND", "HELD", "UPDATED"}, rows)
}

func (a *app) deleteCursor(ctx context.Context, c *client.Client, full, cursor string) error {
	if err := c.DeleteCursor(ctx, full, cursor); err != nil {
		f := &exit.Error{Err: fmt.Errorf("cursor %s of %s: %w", cursor, full, err)}
		if errors.Is(err, code.NotFound) {
			f.Do = "`margay stream cursors` says which there are"
		}
		return f
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(map[string]string{"stream": full, "deleted": cursor})
	case output.Raw:
		return a.Raw([]byte(cursor))
	case output.Text: // for a person, below
	}
	return a.Line("cursor %s of %s is deleted", a.Bold(cursor), full)
}
