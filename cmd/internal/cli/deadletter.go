// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

func (a *app) deadLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "List a group's dead letters, hand them out again, or settle them",
		Long: `A message is a dead letter of a group when its last attempt ended, when a consumer rejected it, or, if the group says so,
when its time to live ended. It stays where it is in the queue, with the reason, until it is redriven or discarded.`,
		Example: `  margay deadletter list emails mailers
  margay deadletter redrive emails mailers --all --rate 10`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.deadLetterListCommand(), a.deadLetterRedriveCommand(), a.deadLetterDiscardCommand())
	return cmd
}

func (a *app) deadLetterListCommand() *cobra.Command {
	var look lookFlags
	cmd := &cobra.Command{
		Use:     "list QUEUE GROUP",
		Aliases: []string{"ls"},
		Short:   "List the dead letters of a group, and why they are",
		Long: `List the dead letters of a group in the order of the queue. Text shows SHARD/OFFSET, key and value, and why; raw the value
and a newline; JSON one object a message.`,
		Example: `  margay deadletter list emails mailers --count 20
  margay deadletter list emails mailers --prefix user/1/ --output json`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := look.options(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if err := checkGroupName(args[1]); err != nil {
				return err
			}
			return a.look(cmd.Context(), args[0], args[1], look.count, append(options, client.OfGroup(args[1]), client.InState(client.Dead)))
		},
	}
	look.define(cmd)
	return cmd
}

// ofDeadLetters takes IDs or --all, so that nothing that was left out by mistake stands for everything.
func ofDeadLetters(args []string, all bool) error {
	switch {
	case all && len(args) > 2:
		return exit.Misuse("ID and --all: give one of them")
	case !all && len(args) == 2:
		return exit.Misuse("no dead letter: give ID, or --all")
	}
	return nil
}

func (a *app) deadLetterRedriveCommand() *cobra.Command {
	var all bool
	var rate int
	cmd := &cobra.Command{
		Use:   "redrive QUEUE GROUP ID...|--all",
		Short: "Hand out dead letters again, their attempts counted from the beginning",
		Long: `Hand out dead letters again, those that are named as SHARD/OFFSET, or all, and say how many. --rate spreads them over
time, so that whatever they failed for is not overwhelmed.`,
		Example: `  margay deadletter redrive emails mailers 0/42
  margay deadletter redrive emails mailers --all --rate 10`,
		Args:              cobra.MinimumNArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ofDeadLetters(args, all); err != nil {
				return err
			}
			if rate < 0 || rate == 0 && cmd.Flags().Changed("rate") {
				return exit.Misuse("--rate %d: want at least 1 a second", rate)
			}
			return a.withGroup(cmd, args, func(ctx context.Context, q *queued, g *client.Group) error {
				ids, err := q.messageIDs(ctx, args[2:])
				if err != nil {
					return err
				}
				n, err := g.Redrive(ctx, client.RedriveOptions{Messages: ids, Rate: rate})
				if err != nil {
					return err
				}
				return a.counted(q, g.Name(), "redriven", n, "dead letter", "handed out again")
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that there are")
	cmd.Flags().IntVar(&rate, "rate", 0, "how many a second; all at once when not given")
	return cmd
}

func (a *app) deadLetterDiscardCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "discard QUEUE GROUP ID...|--all",
		Short: "Settle dead letters: they are done with",
		Example: `  margay deadletter discard emails mailers 0/42 1/7
  margay deadletter discard emails mailers --all`,
		Args:              cobra.MinimumNArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ofDeadLetters(args, all); err != nil {
				return err
			}
			return a.withGroup(cmd, args, func(ctx context.Context, q *queued, g *client.Group) error {
				ids, err := q.messageIDs(ctx, args[2:])
				if err != nil {
					return err
				}
				n, err := g.Discard(ctx, ids...)
				if err != nil {
					return err
				}
				return a.counted(q, g.Name(), "discarded", n, "dead letter", "discarded")
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that there are")
	return cmd
}

// counted says of how many messages something was done.
func (a *app) counted(q *queued, group, verb string, n uint64, thing, done string) error {
	switch a.Format() {
	case output.JSON:
		v := map[string]any{"queue": q.full, verb: n}
		if group != "" {
			v["group"] = group
		}
		return a.JSON(v)
	case output.Raw:
		return a.Line("%d", n)
	case output.Text: // for a person, below
	}
	of := q.name
	if group != "" {
		of = group + " of " + of
	}
	is := "are"
	if n == 1 {
		is = "is"
	}
	return a.Line("%s of %s %s %s", count(int(n), thing), a.Bold(of), is, done) //nolint:gosec // fewer than there are messages
}

// letterWords say why a message is a dead letter.
func letterWords(m *client.QueueRecord) string {
	words := "dead"
	switch m.Reason {
	case client.DeadAttempts:
		words = fmt.Sprintf("failed %s", count(m.Attempts, "time"))
	case client.DeadRejected:
		words = "rejected"
	case client.DeadExpired:
		words = "expired"
	}
	return words + because(m.Error)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + output.Show([]byte(reason))
}
