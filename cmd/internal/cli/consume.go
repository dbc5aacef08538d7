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
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// acksInFlight is how many settlements of `consume` may be unanswered.
const acksInFlight = 256

type consumeFlags struct {
	group  string
	name   string
	count  int
	wait   duration
	ack    bool
	nack   bool
	after  duration
	reject string
}

func (a *app) consumeCommand() *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume QUEUE --group GROUP",
		Short: "Take messages from a queue and print them",
		Long: `Take the next messages of a group and print them.

Without --ack they are given back at the end, as if nobody had had them: --count says how many, and it waits for so many
only as long as half of the group's ack wait lets it hold the first. With --ack each is settled once it is written out,
until interrupted, or until --count, or until none came for --wait. --nack gives them back after a failure, so that an
attempt is counted and the group's backoff, or --after, says when they come again; --reject makes dead letters of them.

A group that is not there is made, and begins with the earliest message. To do something with each message use
'margay work', and to look without taking 'margay queue peek'.

Text shows SHARD/OFFSET, key and value, and the attempt when it is not the first; raw the value and a newline; JSON one
object a message. When the broker restarts, consuming goes on by itself, and standard error says so.`,
		Example: `  margay consume emails --group mailers --count 10
  margay consume emails --group mailers --ack --wait 2s --output raw`,
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(queues()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.consume(cmd.Context(), args[0], &f, cmd.Flags().Changed("reject"))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.group, "group", "", "the group of consumers to be one of")
	flags.StringVar(&f.name, "name", "", "what lists call this consumer (default: this machine and process)")
	flags.IntVar(&f.count, "count", 0, "stop after this many messages")
	flags.Var(&f.wait, "wait", "stop when no message has come for this long")
	flags.BoolVar(&f.ack, "ack", false, "settle what was printed: it is done")
	flags.BoolVar(&f.nack, "nack", false, "give back what was printed, as after a failure")
	flags.Var(&f.after, "after", "with --nack: when it comes again; by the group's backoff when not given")
	flags.StringVar(&f.reject, "reject", "", "make dead letters of what was printed, for this reason")
	return cmd
}

func (f *consumeFlags) check(given func(flag string) bool) error {
	ends := 0
	for _, flag := range []bool{f.ack, f.nack, given("reject")} {
		if flag {
			ends++
		}
	}
	if err := checkGroupName(f.group); err != nil {
		return err
	}
	switch {
	case ends > 1:
		return exit.Misuse("--ack, --nack and --reject: give one of them")
	case given("count") && f.count < 1:
		return exit.Misuse("--count %d: want at least one message", f.count)
	case given("after") && !f.nack:
		return exit.Misuse("--after is about --nack")
	case given("reject") && strings.TrimSpace(f.reject) == "":
		return exit.Misuse("--reject: say why")
	case ends == 0 && !given("count"):
		return exit.Misuse("what is not settled is given back at the end: say how many with --count, or settle them with --ack")
	case ends == 0 && f.count > wire.MaxInFlight:
		return exit.Misuse("--count %d: without --ack at most %d can be had at a time", f.count, wire.MaxInFlight)
	}
	return nil
}

func checkGroupName(group string) error {
	if group == "" {
		return exit.Misuse("no group: say which with --group; consumers of a group share its messages")
	}
	if !wire.ValidName(group) {
		return exit.Misuse("group %.100q: want %s", group, wire.NameRule)
	}
	return nil
}

// join consumes from a group, and says when it is a new one. ctx bounds the set-up.
func (a *app) join(ctx context.Context, q *queued, group, name string, options ...client.ConsumeOption) (*client.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	if name == "" {
		name = thisProcess()
	}
	options = append(options, client.ConsumerName(name), client.OnStatus(a.tellStatus(q.full, "")))
	_, err := q.Group(group).Info(ctx)
	if errors.Is(err, code.NotFound) {
		if _, gone := q.c.Info(ctx, q.full); gone != nil {
			return nil, q.about(gone)
		}
		a.Note("%s: group %s is new, and begins with the earliest message", q.full, group)
	}
	g, err := q.Consume(ctx, group, options...)
	if err != nil {
		return nil, q.about(err)
	}
	return g, nil
}

func (a *app) consume(ctx context.Context, queue string, f *consumeFlags, reject bool) error {
	q, err := a.openQueue(ctx, queue)
	if err != nil {
		return err
	}
	defer q.c.Close()
	settles := f.ack || f.nack || reject
	most := f.count
	if settles && (most == 0 || most > client.DefaultMaxInFlight) {
		most = client.DefaultMaxInFlight
	}
	g, err := a.join(ctx, q, f.group, f.name, client.MaxInFlight(most))
	if err != nil {
		return err
	}
	defer g.Close()
	t := &taker{a: a, q: q, g: g, f: f}
	switch {
	case f.ack:
		t.settle = (*client.Message).AckAsync
	case f.nack:
		t.settle = func(m *client.Message) *client.Settlement {
			return m.NackAsync(time.Duration(f.after), "given back by hand")
		}
	case reject:
		t.settle = func(m *client.Message) *client.Settlement { return m.RejectAsync(f.reject) }
	}
	err = t.run(ctx)
	return errors.Join(err, t.answered(0))
}

// taker is one `margay consume`.
type taker struct {
	a      *app
	q      *queued
	g      *client.Consumer
	f      *consumeFlags
	settle func(*client.Message) *client.Settlement // nil: what was taken is given back at the end

	taken   int
	until   time.Time // of what is held, the first must be given back by then
	pending []*client.Settlement
}

func (t *taker) run(ctx context.Context) error {
	for t.f.count == 0 || t.taken < t.f.count {
		m, err := t.next(ctx)
		if m == nil {
			return err
		}
		if err := t.a.printMessage(m); err != nil {
			return err
		}
		t.taken++
		if t.settle == nil {
			if t.until.IsZero() {
				t.until = time.Now().Add(time.Until(m.Deadline()) / 2)
			}
			continue
		}
		if err := t.a.Flush(); err != nil { // what counts as done must have been written out before
			return err
		}
		t.pending = append(t.pending, t.settle(m))
		if err := t.answered(acksInFlight); err != nil {
			return err
		}
	}
	return nil
}

// next is the next message; none when it is over, which is no error where it was to be.
func (t *taker) next(ctx context.Context) (*client.Message, error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if t.f.wait > 0 {
		within, cancel = context.WithTimeout(ctx, time.Duration(t.f.wait))
	}
	defer cancel()
	if !t.until.IsZero() {
		var stop context.CancelFunc
		within, stop = context.WithDeadline(within, t.until)
		defer stop()
	}
	for m, err := range t.g.Messages(within) {
		if err != nil && within.Err() != nil {
			return nil, nil //nolint:nilnil // interrupting it, or letting it wait in vain, is how it ends
		}
		if err != nil {
			return nil, aboutGroup(t.q, t.f.group, err)
		}
		return m, nil
	}
	return nil, nil //nolint:nilnil // as above
}

// answered waits until no more than some settlements are unanswered.
func (t *taker) answered(left int) error {
	if len(t.pending) <= left {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.a.global.timeout)
	defer cancel()
	for _, s := range t.pending[:len(t.pending)-left] {
		if err := s.Wait(ctx); err != nil {
			t.pending = nil
			return aboutGroup(t.q, t.f.group, err)
		}
	}
	t.pending = append(t.pending[:0], t.pending[len(t.pending)-left:]...)
	return nil
}

// aboutGroup says which group an error is about.
func aboutGroup(q *queued, group string, err error) error {
	f := &exit.Error{Err: fmt.Errorf("group %s of %s: %w", group, q.name, err)}
	if errors.Is(err, code.NotFound) || errors.Is(err, code.Deleted) {
		f.Do = "`margay group list " + q.name + "` says which there are, and `margay group create " + q.name + " " + group + "` makes it"
	}
	return f
}

// messageView is a message in JSON.
type messageView struct {
	ID       string `json:"id"`
	Attempt  int    `json:"attempt"`
	Priority uint8  `json:"priority,omitempty"`
	recordView
}

func viewMessage(m *client.Message) messageView {
	return messageView{m.ID().String(), m.Attempt, m.Priority, viewRecord(&m.Record)}
}

func (a *app) printMessage(m *client.Message) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewMessage(m))
	case output.Raw:
		return a.Raw(m.Value)
	case output.Text: // for a person, below
	}
	line := textRecord(a, &m.Record)
	if m.Attempt > 1 {
		line += "\t" + a.Dim(fmt.Sprintf("(attempt %d)", m.Attempt))
	}
	return a.Line("%s", line)
}
