// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

func (a *app) pushCommand() *cobra.Command {
	var f pubFlags
	var priority uint8
	cmd := &cobra.Command{
		Use:   "push QUEUE [VALUE]",
		Short: "Push a message onto a queue, or a message for each line of standard input",
		Long: `Push VALUE, or standard input as one value, or with --lines one message for each line.

The message waits until consumer groups have settled it. --delay holds it back first, as until a time to send it;
--ttl is when it is of no more use, and --priority lets it overtake.

Text shows the message as SHARD/OFFSET, which 'margay queue cancel' and 'reschedule' take; raw that alone. Lines end at
\n only. A line that fails stops the command with a non-zero exit, and it says which lines are certainly in, certainly
not in, and unknown.`,
		Example: `  margay push emails '{"to":"ada@example.com"}' --delay 5m
  margay push emails --lines --key-from json:/to < letters.jsonl`,
		Args:              cobra.RangeArgs(1, 2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(queues()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if priority > batch.MaxPriority {
				return exit.Misuse("--priority %d: want 0 to %d", priority, batch.MaxPriority)
			}
			return a.push(cmd, args, &f, priority)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "key of the message; decides the shard, and groups may keep the order of a key")
	flags.StringArrayVar(&f.headers, "header", nil, "header of the message as NAME=VALUE; may be repeated")
	flags.BoolVar(&f.lines, "lines", false, "push each line of standard input")
	flags.StringVar(&f.keyFrom, "key-from", "", "take each key from its value: re:REGEXP (first group or whole match) or json:/POINTER")
	flags.Var(&f.delay, "delay", "hold the message back this long, such as 5m")
	flags.Var(&f.ttl, "ttl", "the message's life, the delay included; none when 0s")
	flags.Uint8Var(&priority, "priority", 0, "from 0 to 9: higher ones are handed out first")
	flags.StringVar(&f.shardKey, "shard-key", "", "what decides the shard in place of the key; not stored")
	flags.StringVar(&f.dedupID, "dedup-id", "", "store the message once, however often it comes with this id within the queue's dedup window")
	return cmd
}

func (a *app) push(cmd *cobra.Command, args []string, f *pubFlags, priority uint8) error {
	recipe, err := f.recipe(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	recipe.priority = priority
	if err := f.oneSource(args, a.Streams.InTerminal); err != nil {
		return err
	}
	q, err := a.openQueue(cmd.Context(), args[0], a.deliveryOptions(cmd, f.lines)...)
	if err != nil {
		return err
	}
	defer q.c.Close()
	if f.lines {
		return a.pubLines(cmd.Context(), recipe, &lineWriter{
			preset: control.PresetQueue, name: q.name, things: "messages", acked: a.printPushed,
			send: func(ctx context.Context, rec client.Record) func(context.Context) (client.Ack, error) {
				return q.PushAsync(ctx, rec).Wait
			},
		})
	}
	value, err := a.oneValue(args)
	if err != nil {
		return err
	}
	rec, err := recipe.record(value)
	if err != nil {
		return err
	}
	ack, err := q.Push(cmd.Context(), rec)
	if err != nil {
		return q.about(err)
	}
	if a.Format() != output.Text {
		return a.printPushed(0, ack)
	}
	due := ""
	if f.delay > 0 {
		due = ", due in " + f.delay.String()
	}
	return a.Line("%s message %s%s%s", a.Bold(q.name), messageID(ack.Shard, ack.Offset), due, a.Dim(reachedByAck(ack)))
}

// pushedView is an acknowledged message in JSON.
type pushedView struct {
	ID string `json:"id"`
	ackView
}

// printPushed prints nothing for a person.
func (a *app) printPushed(line uint64, ack client.Ack) error {
	id := messageID(ack.Shard, ack.Offset)
	switch a.Format() {
	case output.JSON:
		return a.JSON(pushedView{id, viewAck(line, ack)})
	case output.Raw:
		return a.Line("%s", id)
	case output.Text: // a million lines would say nothing to anybody
	}
	return nil
}

func messageID(shard uint32, offset uint64) string {
	return client.MessageID{Shard: shard, Offset: offset}.String()
}

// queued is a queue that a command uses: the handle, and its name as the user typed it.
type queued struct {
	*client.Queue
	c          *client.Client
	full, name string
}

// openQueue connects to a queue. The caller closes the client.
func (a *app) openQueue(ctx context.Context, queue string, options ...client.Option) (*queued, error) {
	c, full, name, err := a.connectTo(ctx, queue, options...)
	if err != nil {
		return nil, err
	}
	return &queued{c.Queue(full), c, full, name}, nil
}

// queueWithin connects to a queue and runs do, which must be done within --timeout.
func (a *app) queueWithin(cmd *cobra.Command, queue string, do func(ctx context.Context, q *queued) error) error {
	q, err := a.openQueue(cmd.Context(), queue)
	if err != nil {
		return err
	}
	defer q.c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), a.global.timeout)
	defer cancel()
	return do(ctx, q)
}

// about says which queue an error is about.
func (q *queued) about(err error) error { return aboutPreset(control.PresetQueue, err, q.name) }

// messageIDs are messages as a user types them. The shard may be left out where there is one only.
func (q *queued) messageIDs(ctx context.Context, args []string) ([]client.MessageID, error) {
	ids := make([]client.MessageID, len(args))
	short := ""
	for i, s := range args {
		id, err := client.ParseMessageID(s)
		if err != nil {
			return nil, exit.Misuse("message %q: want SHARD/OFFSET, or OFFSET where the queue has one shard", s)
		}
		if ids[i] = id; !strings.Contains(s, "/") {
			short = s
		}
	}
	if short == "" {
		return ids, nil
	}
	info, err := q.c.Info(ctx, q.full)
	if err != nil {
		return nil, q.about(err)
	}
	if info.Shards > 1 {
		return nil, exit.Misuse("message %s: each of the %s counts its own offsets, so write SHARD/%s", short, strconv.Itoa(info.Shards)+" shards", short)
	}
	return ids, nil
}
