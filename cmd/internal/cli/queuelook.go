// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/arg"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// peeked is how many messages `queue peek` shows when it is not told.
const peeked = 10

// states of a message, by the words for them.
func states() map[string]client.MessageState {
	return map[string]client.MessageState{
		"ready": client.Ready, "delayed": client.Delayed, "in-flight": client.InFlight, "dead": client.Dead,
	}
}

// lookFlags say which messages are meant.
type lookFlags struct {
	selectFlags
	header string
	count  int
}

func (f *lookFlags) define(cmd *cobra.Command) {
	f.selectFlags.define(cmd, true)
	cmd.Flags().StringVar(&f.header, "header", "", "only messages that have this header, as NAME=VALUE")
	cmd.Flags().IntVar(&f.count, "count", f.count, "stop after this many messages")
}

func (f *lookFlags) options(given func(flag string) bool) ([]client.FindOption, error) {
	if given("count") && f.count < 1 {
		return nil, exit.Misuse("--count %d: want at least one message", f.count)
	}
	selectors, err := f.selectors(given)
	if err != nil {
		return nil, err
	}
	var options []client.FindOption
	for _, s := range selectors {
		options = append(options, s)
	}
	if given("header") {
		name, value, err := arg.Header(f.header)
		if err != nil {
			return nil, exit.Misuse("--header: %w", err)
		}
		options = append(options, client.WithHeader(name, []byte(value)))
	}
	return options, nil
}

// groupFlag says what the messages are to a group.
type groupFlag struct {
	group  string
	states []string
}

func (f *groupFlag) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.group, "group", "", "say what the messages are to this group, and leave out those that it has settled")
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "with --group: only ready, delayed, in-flight or dead ones (default all but the dead)")
	complete(cmd, "state", "ready", "delayed", "in-flight", "dead")
}

func (f *groupFlag) options(given func(flag string) bool) ([]client.FindOption, error) {
	if !given("group") {
		if given("state") {
			return nil, exit.Misuse("--state is what a message is to a group: give --group")
		}
		return nil, nil
	}
	if err := checkGroupName(f.group); err != nil {
		return nil, err
	}
	options := []client.FindOption{client.OfGroup(f.group)}
	var set client.MessageState
	for _, word := range f.states {
		state, ok := states()[word]
		if !ok {
			return nil, exit.Misuse("--state %q: want ready, delayed, in-flight or dead", word)
		}
		set |= state
	}
	if set != 0 {
		options = append(options, client.InState(set))
	}
	return options, nil
}

func (a *app) queuePeekCommand() *cobra.Command {
	f := lookFlags{count: peeked}
	var of groupFlag
	return a.lookCommand(&f, &of, &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show the first messages of a queue without taking them",
		Long: `Show the first messages that are in a queue, shard by shard, or with --group those that the group has before it and what
they are to it. Nobody's claim is touched.

Text shows SHARD/OFFSET, key and value, and the state; raw the value and a newline; JSON one object a message.`,
		Example: `  margay queue peek emails
  margay queue peek emails --group mailers --state in-flight,delayed --output json`,
	})
}

func (a *app) queueFindCommand() *cobra.Command {
	var f lookFlags
	var of groupFlag
	return a.lookCommand(&f, &of, &cobra.Command{
		Use:   "find QUEUE",
		Short: "Find messages of a queue by key or header, without taking them",
		Long: `Show all messages that are in a queue and match, shard by shard, or with --group those that the group has before it and
what they are to it. It reads by pages: what it shows is not of one moment.

Text shows SHARD/OFFSET, key and value, and the state; raw the value and a newline; JSON one object a message.`,
		Example: `  margay queue find emails --key user/1
  margay queue find emails --header campaign=spring --group mailers --state dead`,
	})
}

func (a *app) lookCommand(f *lookFlags, of *groupFlag, cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(1), a.completeLogs(queues())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := f.options(cmd.Flags().Changed)
		if err != nil {
			return err
		}
		more, err := of.options(cmd.Flags().Changed)
		if err != nil {
			return err
		}
		return a.look(cmd.Context(), args[0], of.group, f.count, append(options, more...))
	}
	f.define(cmd)
	of.define(cmd)
	return cmd
}

// look prints messages, at most some when that is above 0. The whole may take long; each page has its own bound.
func (a *app) look(ctx context.Context, queue, group string, most int, options []client.FindOption) error {
	q, err := a.openQueue(ctx, queue)
	if err != nil {
		return err
	}
	defer q.c.Close()
	n := 0
	for m, err := range q.Find(ctx, options...) {
		switch {
		case err == nil:
		case group != "" && errors.Is(err, code.NotFound):
			if _, gone := q.c.Info(ctx, q.full); gone != nil {
				return q.about(gone)
			}
			return aboutGroup(q, group, err)
		default:
			return q.about(err)
		}
		if err := a.printQueued(m); err != nil {
			return err
		}
		if n++; n == most {
			break
		}
	}
	return nil
}

// queuedView is a message that was looked at, in JSON.
type queuedView struct {
	ID       string    `json:"id"`
	State    string    `json:"state,omitempty"` // to the group
	Attempts int       `json:"attempts"`        // that have ended
	Due      time.Time `json:"due,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
	Consumer string    `json:"consumer,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Priority uint8     `json:"priority,omitempty"`
	recordView
}

func stateWord(s client.MessageState) string {
	for word, state := range states() {
		if s == state {
			return word
		}
	}
	return ""
}

func reasonWord(r client.DeadReason) string {
	switch r {
	case client.DeadAttempts:
		return "attempts"
	case client.DeadRejected:
		return "rejected"
	case client.DeadExpired:
		return "expired"
	}
	return ""
}

func (a *app) printQueued(m *client.QueueRecord) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(queuedView{
			ID: m.ID().String(), State: stateWord(m.State), Attempts: m.Attempts, Due: utc(m.Due), Expires: utc(m.Expires),
			Consumer: m.Consumer, Reason: reasonWord(m.Reason), Error: m.Error, Since: utc(m.Since), Priority: m.Priority,
			recordView: viewRecord(&m.Record),
		})
	case output.Raw:
		return a.Raw(m.Value)
	case output.Text: // for a person, below
	}
	line := textRecord(a, &m.Record)
	if words := queuedWords(m); words != "" {
		line += "\t" + a.Dim("("+words+")")
	}
	return a.Line("%s", line)
}

// queuedWords say what a message is to the group.
func queuedWords(m *client.QueueRecord) string {
	var words []string
	switch m.State {
	case client.Ready:
		words = append(words, "ready")
	case client.Delayed:
		words = append(words, "delayed")
	case client.InFlight:
		words = append(words, "in flight")
		if m.Consumer != "" {
			words[0] += " at " + output.Show([]byte(m.Consumer))
		}
	case client.Dead:
		return letterWords(m)
	case client.Stored: // of no group: only what the record itself says
	}
	if m.Attempts > 0 {
		words = append(words, count(m.Attempts, "attempt")+" failed"+because(m.Error))
	}
	if left := time.Until(m.Due); !m.Due.IsZero() && left > 0 {
		words = append(words, "due in "+lifeLeft(left))
	}
	if left := time.Until(m.Expires); !m.Expires.IsZero() && left > 0 {
		words = append(words, lifeLeft(left)+" left")
	}
	return strings.Join(words, ", ")
}

func (a *app) queueCancelCommand() *cobra.Command {
	var of string
	cmd := &cobra.Command{
		Use:   "cancel QUEUE ID...",
		Short: "Settle messages that nobody has, so that they are never handed out",
		Long: `Settle messages, named as SHARD/OFFSET, for every group of the queue, or with --group for that one, and say for how
many. What is in flight stays with its consumer, and what is a dead letter is to be discarded.`,
		Example: `  margay queue cancel emails 0/42
  margay queue cancel emails 0/42 1/7 --group mailers`,
		Args:              cobra.MinimumNArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(queues()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.aboutMessages(cmd, args, of, "cancelled", "cancelled",
				func(ctx context.Context, q *queued, ids []client.MessageID) (uint64, error) {
					if of != "" {
						return q.Group(of).Cancel(ctx, ids...)
					}
					return q.Cancel(ctx, ids...)
				})
		},
	}
	cmd.Flags().StringVar(&of, "group", "", "for this group only")
	return cmd
}

func (a *app) queueRescheduleCommand() *cobra.Command {
	var of, at string
	var after duration
	cmd := &cobra.Command{
		Use:   "reschedule QUEUE ID... --in DURATION|--at TIME",
		Short: "Move when messages that nobody has are due",
		Long: `Move when messages, named as SHARD/OFFSET, are due, for every group of the queue, or with --group for that one, and say
for how many: --in 0s for now. What is in flight stays with its consumer.`,
		Example: `  margay queue reschedule emails 0/42 --in 1h
  margay queue reschedule emails 0/42 1/7 --at 2026-12-24T18:00:00Z`,
		Args:              cobra.MinimumNArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(queues()),
		RunE: func(cmd *cobra.Command, args []string) error {
			due := time.Now().Add(time.Duration(after))
			switch given := cmd.Flags().Changed; {
			case given("in") == given("at"):
				return exit.Misuse("say when: --in a while, or --at a time")
			case given("at"):
				var err error
				if due, err = time.Parse(time.RFC3339Nano, at); err != nil {
					return exit.Misuse("--at %q: want a time such as 2026-12-24T18:00:00Z", at)
				}
			}
			when := "due now"
			if left := time.Until(due); left > 0 {
				when = "due in " + control.Duration(left.Round(time.Second)).String()
			}
			return a.aboutMessages(cmd, args, of, "rescheduled", when,
				func(ctx context.Context, q *queued, ids []client.MessageID) (uint64, error) {
					if of != "" {
						return q.Group(of).Reschedule(ctx, due, ids...)
					}
					return q.Reschedule(ctx, due, ids...)
				})
		},
	}
	cmd.Flags().StringVar(&of, "group", "", "for this group only")
	cmd.Flags().Var(&after, "in", "due this long from now, such as 1h; 0s is now")
	cmd.Flags().StringVar(&at, "at", "", "due at this time, such as 2026-12-24T18:00:00Z")
	return cmd
}

// aboutMessages does something about messages that are named. None of them is no success: a script that names one wants it done.
func (a *app) aboutMessages(
	cmd *cobra.Command, args []string, group, verb, done string, do func(context.Context, *queued, []client.MessageID) (uint64, error),
) error {
	if group != "" || cmd.Flags().Changed("group") {
		if err := checkGroupName(group); err != nil {
			return err
		}
	}
	return a.queueWithin(cmd, args[0], func(ctx context.Context, q *queued) error {
		ids, err := q.messageIDs(ctx, args[1:])
		if err != nil {
			return err
		}
		n, err := do(ctx, q, ids)
		if err == nil && n == 0 {
			err = code.New(code.NotFound, "none of %s waits for a group", count(len(ids), "message"))
		}
		if err != nil {
			return q.aboutMessage(ctx, group, err)
		}
		return a.counted(q, group, verb, n, "message", done)
	})
}

// aboutMessage says what an error is about. That a message is not there to be had is not that there is no queue or group, which
// the code alone does not tell.
func (q *queued) aboutMessage(ctx context.Context, group string, err error) error {
	if errors.Is(err, code.NotFound) {
		if _, gone := q.c.Info(ctx, q.full); gone != nil {
			return q.about(gone)
		}
		if group != "" {
			if _, gone := q.Group(group).Info(ctx); gone != nil {
				return aboutGroup(q, group, gone)
			}
		}
		return &exit.Error{Err: fmt.Errorf("queue %s: %w", q.name, err), Do: "look with `margay queue peek " + q.name + " --group GROUP`"}
	}
	if group != "" {
		return aboutGroup(q, group, err)
	}
	return q.about(err)
}
