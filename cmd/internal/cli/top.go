// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

const (
	topInterval = 2 * time.Second
	minInterval = 100 * time.Millisecond
)

type topFlags struct {
	interval time.Duration
	count    uint64
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what a node does, as rates, again and again",
		Long: `Show what a node does: publishes, records and bytes in and out each second, the mean time to an
acknowledgement, errors, records that subscriptions lost, and who is connected. It needs a credential that may
manage the node.

On a terminal the table is drawn anew every --interval until interrupted. Piped, one line for one interval is
written, or --count of them. JSON is one object a line, raw the records in and out each second. A node that does not answer for a
while is waited for on a terminal, and is an error in a pipe.`,
		Example: `  margay top
  margay top --count 10 --interval 1s --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.interval < minInterval {
				return exit.Misuse("--interval %v: want at least %v", f.interval, minInterval)
			}
			if cmd.Flags().Changed("count") && f.count == 0 {
				return exit.Misuse("--count 0: want at least one")
			}
			if f.count == 0 && !a.Streams.OutTerminal {
				f.count = 1
			}
			return a.top(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.interval, "interval", topInterval, "time between two looks")
	flags.Uint64Var(&f.count, "count", 0, "stop after so many; 0 is never on a terminal, and one in a pipe")
	return cmd
}

// topView is one interval of one node in JSON.
type topView struct {
	Time     time.Time `json:"time"`
	Node     string    `json:"node"`
	Verdict  string    `json:"verdict"`
	Interval float64   `json:"interval_seconds"`

	Publishes   float64 `json:"publishes_per_second"`
	RecordsIn   float64 `json:"records_in_per_second"`
	BytesIn     float64 `json:"bytes_in_per_second"`
	AckSeconds  float64 `json:"mean_ack_seconds"`
	RecordsOut  float64 `json:"records_out_per_second"`
	BytesOut    float64 `json:"bytes_out_per_second"`
	NotStored   float64 `json:"not_stored_per_second"`
	Errors      float64 `json:"errors_per_second"`
	LostRecords float64 `json:"lost_records_per_second"`

	Connections   int64  `json:"connections"`
	Subscriptions int64  `json:"subscriptions"`
	InFlight      int64  `json:"in_flight_bytes"`
	Queued        int64  `json:"queued_bytes"`
	FreeBytes     uint64 `json:"disk_free_bytes"`
}

// rates compares two looks at a node; one that was restarted in between has counted from 0.
func rates(was, is control.Status) topView {
	v := topView{
		Time: is.Time, Node: is.Node, Verdict: is.Verdict, Interval: is.Time.Sub(was.Time).Seconds(),
		Connections: is.Connections, Subscriptions: is.Subscriptions, InFlight: is.InFlight.Used, Queued: is.QueuedBytes,
		FreeBytes: is.Disk.FreeBytes,
	}
	before := was.Totals
	if !was.StartedAt.Equal(is.StartedAt) {
		before = control.StatusTotals{}
		v.Interval = is.Time.Sub(is.StartedAt).Seconds()
	}
	rate := func(old, now float64) float64 {
		if v.Interval <= 0 {
			return 0
		}
		return max(now-old, 0) / v.Interval
	}
	now := is.Totals
	v.Publishes, v.RecordsIn, v.BytesIn = rate(before.Publishes, now.Publishes), rate(before.RecordsIn, now.RecordsIn), rate(before.BytesIn, now.BytesIn)
	v.RecordsOut, v.BytesOut = rate(before.RecordsOut, now.RecordsOut), rate(before.BytesOut, now.BytesOut)
	v.NotStored, v.Errors, v.LostRecords = rate(before.NotStored, now.NotStored), rate(before.Errors, now.Errors), rate(before.LostRecords, now.LostRecords)
	if acks := now.Acks - before.Acks; acks > 0 {
		v.AckSeconds = (now.AckSeconds - before.AckSeconds) / acks
	}
	return v
}

func (a *app) top(ctx context.Context, f *topFlags) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	c, err := a.rest(t)
	if err != nil {
		return err
	}
	defer c.Close()
	was, err := c.Status(ctx)
	if err != nil {
		return reached(err, t.HTTP)
	}
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	for shown := uint64(0); f.count == 0 || shown < f.count; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return interrupted(ctx, f)
		}
		is, err := c.Status(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return interrupted(ctx, f)
		case err != nil && !a.Streams.OutTerminal:
			return reached(err, t.HTTP)
		case err != nil:
			a.Warn("no answer: %s", message(err))
			continue
		}
		if err := a.printTop(rates(was, is)); err != nil {
			return err
		}
		was = is
		shown++
	}
	return nil
}

// interrupted is how a top ends that has no other end.
func interrupted(ctx context.Context, f *topFlags) error {
	if f.count == 0 {
		return nil
	}
	return ctx.Err()
}

var topHeading = []string{"NODE", "PUB/S", "REC/S IN", "B/S IN", "ACK", "REC/S OUT", "B/S OUT", "ERR/S", "LOST/S", "CONNS", "SUBS", "IN FLIGHT", "QUEUED", "FREE"}

// clearScreen moves to the top of the screen and empties it.
const clearScreen = "\x1b[H\x1b[2J"

func (a *app) printTop(v topView) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(v)
	case output.Raw:
		return a.Raw([]byte(number(v.RecordsIn) + " " + number(v.RecordsOut)))
	case output.Text: // for a person, below
	}
	if a.Streams.OutTerminal {
		verdict := a.Good(v.Verdict)
		if v.Verdict != control.Healthy {
			verdict = a.Bad(v.Verdict) + ": `margay status` says why"
		}
		if err := a.Line("%s%s  %s", clearScreen, v.Time.Local().Format(time.DateTime), verdict); err != nil {
			return err
		}
	}
	ack := "-"
	if v.AckSeconds > 0 {
		ack = time.Duration(v.AckSeconds * float64(time.Second)).Round(10 * time.Microsecond).String()
	}
	row := []string{
		v.Node, number(v.Publishes), number(v.RecordsIn), about(int64(v.BytesIn)), ack, number(v.RecordsOut), about(int64(v.BytesOut)),
		number(v.Errors), number(v.LostRecords), strconv.FormatInt(v.Connections, 10), strconv.FormatInt(v.Subscriptions, 10),
		about(v.InFlight), about(v.Queued), about(int64(v.FreeBytes)),
	}
	if err := a.Table(topHeading, [][]string{row}); err != nil {
		return err
	}
	return a.Flush()
}

// number is a rate as a person reads it: whole when it is large.
func number(v float64) string {
	if v == 0 || v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
