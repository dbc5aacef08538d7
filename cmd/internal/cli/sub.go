// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/arg"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

type subFlags struct {
	from  string
	end   bool
	shard uint32
	count uint64

	durable string

	keys, prefixes, patterns []string
}

func (a *app) subCommand() *cobra.Command {
	var f subFlags
	cmd := &cobra.Command{
		Use:   "sub STREAM",
		Short: "Read a stream, from now on or from anywhere in its history",
		Long: `Print the records of a stream as they come, until interrupted, or until --end or --count.

--from is earliest, latest, an offset (a whole number; needs --shard when the stream has several), a time
such as 2026-01-31T12:00:00Z, or a duration back from now such as -15m. Without it reading starts at the
latest record, and with --end at the earliest.

--key, --prefix and --pattern let through the records whose key is, begins with, or matches the value;
given several times, or together, a record comes once when any of them matches. In a pattern "/" divides
levels, "+" stands for one level and a last "#" for all that follow. The broker filters.

--durable gives reading a name: how far it has got is kept by the cluster, and the next who reads under the
name goes on there, wherever that is; --from counts only for a name that is new. One reader at a time has
the name, and a newer one takes it over. What is printed last before a crash comes again.

Text shows SHARD/OFFSET, key and value; raw the value and a newline; JSON one object a record. When the
broker restarts, reading goes on by itself behind the last record shown, and standard error says so.
Records that will not come are reported as a gap, never passed over in silence.`,
		Example: `  margay sub orders --from earliest --end --output raw
  margay sub orders --from -15m --output json
  margay sub devices --pattern 'device/+/telemetry'
  margay sub orders --durable reports --from earliest --end`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.count == 0 && cmd.Flags().Changed("count") {
				return exit.Misuse("--count 0: want at least one record")
			}
			if cmd.Flags().Changed("durable") && !control.ValidName(f.durable) {
				return exit.Misuse("--durable %q: want %s", f.durable, control.NameRule)
			}
			return a.sub(cmd.Context(), args[0], &f, cmd.Flags().Changed("shard"))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "where to start: earliest, latest, OFFSET or TIME")
	flags.BoolVar(&f.end, "end", false, "stop at the end of what is there now")
	flags.Uint32Var(&f.shard, "shard", 0, "read this shard only")
	flags.Uint64Var(&f.count, "count", 0, "stop after this many records")
	flags.StringVar(&f.durable, "durable", "", "keep under this name how far reading has got, and go on there")
	flags.StringArrayVar(&f.keys, "key", nil, "only records of this key; may be repeated")
	flags.StringArrayVar(&f.prefixes, "prefix", nil, "only records whose key begins with this; may be repeated")
	flags.StringArrayVar(&f.patterns, "pattern", nil, "only records whose key matches this topic pattern; may be repeated")
	complete(cmd, "from", "earliest", "latest")
	return cmd
}

func (a *app) sub(ctx context.Context, stream string, f *subFlags, oneShard bool) error {
	if f.from == "" {
		f.from = "latest"
		if f.end {
			f.from = "earliest" // from the latest to the end there is nothing
		}
	}
	start, err := arg.ParseStart(f.from, time.Now())
	if err != nil {
		return exit.Misuse("--from: %w", err)
	}
	c, full, name, err := a.connectTo(ctx, stream)
	if err != nil {
		return err
	}
	defer c.Close()

	setup, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	info, err := c.Info(setup, full)
	if err != nil {
		return aboutStream(err, name)
	}
	options, err := f.options(start, oneShard, info.Shards)
	if err != nil {
		return err
	}
	options = append(options, client.OnStatus(a.tellStatus(full, " behind the last record")))
	sub, err := c.Subscribe(setup, full, options...)
	if err != nil {
		return subFailure(err, name)
	}
	defer sub.Close()
	if f.durable == "" {
		return a.printRecords(ctx, sub, name, f.count, func() error { return nil })
	}
	if sub.Resumed() {
		a.Note("%s: going on where %s stands", full, f.durable)
	} else {
		a.Note("%s: %s is new", full, f.durable)
	}
	// What counts as read must have been written out before.
	if err := a.printRecords(ctx, sub, name, f.count, a.Flush); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	if err := sub.Commit(ctx); err != nil {
		return subFailure(err, name)
	}
	return nil
}

func noShard(shard uint32, shards int) error {
	return &exit.Error{
		Err: fmt.Errorf("the stream has no shard %d, only 0 to %d", shard, shards-1), Code: exit.NotThere,
		Do: "`margay stream info` says how many there are",
	}
}

// options make the subscription lose nothing that is there: a reader that is slow catches up from the
// log, and one whose place was removed goes on behind an explicit gap.
func (f *subFlags) options(start arg.Start, oneShard bool, shards int) ([]client.SubscribeOption, error) {
	options := []client.SubscribeOption{client.Overflow(client.PolicyCatchUp), client.SkipLost()}
	for _, filter := range []struct {
		values []string
		option func(...string) client.SubscribeOption
	}{{f.keys, client.KeyExact}, {f.prefixes, client.KeyPrefix}, {f.patterns, client.Keys}} {
		if len(filter.values) > 0 {
			options = append(options, filter.option(filter.values...))
		}
	}
	if oneShard {
		if int64(f.shard) >= int64(shards) {
			return nil, noShard(f.shard, shards)
		}
		options = append(options, client.Shards(f.shard))
	}
	if f.end {
		options = append(options, client.UntilMark())
	}
	if f.durable != "" {
		options = append(options, client.Durable(f.durable))
	}
	switch start.Kind {
	case arg.Earliest:
		options = append(options, client.FromEarliest())
	case arg.Latest:
		options = append(options, client.FromLatest())
	case arg.AtTime:
		options = append(options, client.FromTime(start.Time))
	case arg.AtOffset:
		if !oneShard && shards > 1 {
			return nil, exit.Misuse("--from %d: each of the %d shards counts its own offsets, so name one with --shard", start.Offset, shards)
		}
		options = append(options, client.FromOffset(f.shard, start.Offset))
	}
	return options, nil
}

// tellStatus says on standard error what becomes of the connection; once for each loss, not for each try.
func (a *app) tellStatus(log, goingOn string) func(client.Status) {
	var lost atomic.Bool
	return func(s client.Status) {
		switch {
		case s.Connected && !lost.Swap(false): // for the first time
		case s.Connected:
			a.Warn("%s: connected again, going on%s", log, goingOn)
		case s.Attempt == 0:
			lost.Store(true)
			why := ""
			if e := client.AsError(s.Err); e != nil {
				why = " (" + e.Message + ")"
			}
			a.Warn("%s: lost the broker, trying again until it is back%s", log, why)
		}
	}
}

// printRecords prints what comes; after is called behind each record.
func (a *app) printRecords(ctx context.Context, sub *client.Subscription, name string, most uint64, after func() error) error {
	var n uint64
	for rec, err := range sub.Records(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil // interrupting a tail is how it ends
			}
			return subFailure(err, name)
		}
		if err := a.printRecord(&rec); err != nil {
			return err
		}
		if err := after(); err != nil {
			return err
		}
		if n++; n == most {
			return nil
		}
	}
	for shard, g := range sub.PendingGaps() {
		if err := a.tellGap(shard, g); err != nil {
			return err
		}
	}
	return nil
}

// tellGap says on standard error what will not come, behind the records that precede it.
func (a *app) tellGap(shard uint32, g client.Gap) error {
	if err := a.Flush(); err != nil {
		return err
	}
	a.Warn("gap: shard %d: offsets %d to %d will not come (%s)", shard, g.From, g.To-1, g.Reason)
	return nil
}

func subFailure(err error, name string) error {
	if e := client.AsError(err); e != nil && e.Code == code.OutOfRange {
		if latest, ok := e.Details.Get(code.DetailLatest); ok {
			earliest, _ := e.Details.Get(code.DetailEarliest)
			return &exit.Error{
				Err: fmt.Errorf("stream %s: %w", name, err),
				Do:  fmt.Sprintf("what is there begins at offset %d; the next record will be at %d", earliest, latest),
			}
		}
	}
	return aboutStream(err, name)
}

// recordView is a record in JSON.
type recordView struct {
	Shard       uint32       `json:"shard"`
	Offset      uint64       `json:"offset"`
	Generation  uint64       `json:"generation"`
	Key         *string      `json:"key"` // null: the record has none
	KeyEncoding string       `json:"key_encoding,omitempty"`
	Headers     []headerView `json:"headers"`
	Value       *string      `json:"value"` // null: a tombstone
	Encoding    string       `json:"encoding"`
	AppendTime  time.Time    `json:"append_time"`
	Timestamp   time.Time    `json:"timestamp,omitzero"`
	Delay       string       `json:"delay,omitempty"`
	TTL         string       `json:"ttl,omitempty"`
	Gap         *gapView     `json:"gap,omitempty"`
}

type headerView struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Encoding string `json:"encoding"`
}

// gapView names offsets that stand before this record and will not come; to is exclusive.
type gapView struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
}

func viewRecord(rec *client.Record) recordView {
	v := recordView{
		Shard: rec.Shard, Offset: rec.Offset, Generation: rec.Generation,
		AppendTime: utc(rec.AppendTime), Timestamp: utc(rec.Timestamp),
		Headers: make([]headerView, 0, len(rec.Headers)), Encoding: output.EncodingText,
	}
	if rec.Key != nil {
		key, encoding := output.Encode(rec.Key)
		v.Key = &key
		if encoding != output.EncodingText {
			v.KeyEncoding = encoding
		}
	}
	if rec.Value != nil {
		var value string
		value, v.Encoding = output.Encode(rec.Value)
		v.Value = &value
	}
	for _, h := range rec.Headers {
		value, encoding := output.Encode(h.Value)
		v.Headers = append(v.Headers, headerView{h.Key, value, encoding})
	}
	if rec.Delay > 0 {
		v.Delay = control.Duration(rec.Delay).String()
	}
	if rec.TTL > 0 {
		v.TTL = control.Duration(rec.TTL).String()
	}
	if g := rec.Gap; g != nil {
		v.Gap = &gapView{g.From, g.To, g.Reason.String()}
	}
	return v
}

func (a *app) printRecord(rec *client.Record) error {
	if g := rec.Gap; g != nil {
		if err := a.tellGap(rec.Shard, *g); err != nil {
			return err
		}
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewRecord(rec))
	case output.Raw:
		return a.Raw(rec.Value)
	case output.Text: // for a person, below
	}
	return a.Line("%s", textRecord(a, rec))
}

func textRecord(a *app, rec *client.Record) string {
	var b strings.Builder
	b.WriteString(a.Dim(fmt.Sprintf("%d/%d", rec.Shard, rec.Offset)))
	b.WriteByte('\t')
	if rec.Key != nil {
		b.WriteString(a.Bold(output.Show(rec.Key)))
	}
	b.WriteByte('\t')
	if rec.Value == nil {
		b.WriteString(a.Dim("(tombstone)"))
	} else {
		b.WriteString(output.Show(rec.Value))
	}
	return b.String()
}
