// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
)

func (a *app) groupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Create, list, change, move and delete the consumer groups of a queue",
		Long: `A group is a place in a queue that its consumers share, and what is handed out to them. Each group gets every message;
within a group each message goes to one consumer. A queue keeps a message until every group has settled it.

Any stream on disk has groups, too.`,
		Example: `  margay group create emails mailers --max-attempts 5
  margay group list emails`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		a.groupCreateCommand(), a.groupListCommand(), a.groupInfoCommand(), a.groupUpdateCommand(), a.groupSeekCommand(),
		a.groupChangeCommand("pause", "Let a group hand out nothing until it is resumed; what is out can be settled", "hands out nothing until `margay group resume`",
			(*client.Group).Pause),
		a.groupChangeCommand("resume", "Let a paused group hand out again", "hands out", (*client.Group).Resume),
		a.groupChangeCommand("reset", "Let a group begin again: attempts, dead letters and counts are forgotten", "begins again with the earliest message",
			(*client.Group).Reset),
		a.groupChangeCommand("delete", "Delete a group with all that it knows; its consumers end", "is deleted", (*client.Group).Delete),
	)
	return cmd
}

// withGroup runs do about a group, within --timeout.
func (a *app) withGroup(cmd *cobra.Command, args []string, do func(ctx context.Context, q *queued, g *client.Group) error) error {
	if err := checkGroupName(args[1]); err != nil {
		return err
	}
	return a.queueWithin(cmd, args[0], func(ctx context.Context, q *queued) error {
		err := do(ctx, q, q.Group(args[1]))
		if _, told := errors.AsType[*exit.Error](err); err == nil || told {
			return err
		}
		if len(args) > 2 { // it names messages
			return q.aboutMessage(ctx, args[1], err)
		}
		if errors.Is(err, code.NotFound) {
			if _, gone := q.c.Info(ctx, q.full); gone != nil {
				return q.about(gone)
			}
		}
		return aboutGroup(q, args[1], err)
	})
}

func (a *app) groupCreateCommand() *cobra.Command {
	var set groupFlags
	var from string
	cmd := &cobra.Command{
		Use:     "create QUEUE GROUP",
		Aliases: []string{"add"},
		Short:   "Create a group, or find the very same one there already",
		Long: `Create a group of a queue. It begins with the earliest message that is there, or --from somewhere else: earliest,
latest, an offset (of a queue with one shard), a time such as 2026-01-31T12:00:00Z, or a duration back from now such
as -15m.`,
		Example: `  margay group create emails mailers --ack-wait 2m --max-attempts 5
  margay group create orders billing --order key --from latest`,
		Args:              cobra.ExactArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withGroup(cmd, args, func(ctx context.Context, q *queued, g *client.Group) error {
				return a.createGroup(ctx, cmd, q, g, &set, from)
			})
		},
	}
	set.define(cmd, true)
	cmd.Flags().StringVar(&from, "from", "earliest", "where it begins: earliest, latest, OFFSET or TIME")
	complete(cmd, "from", "earliest", "latest")
	return cmd
}

func (a *app) createGroup(ctx context.Context, cmd *cobra.Command, q *queued, g *client.Group, set *groupFlags, from string) error {
	info, err := q.c.Info(ctx, q.full)
	if err != nil {
		return q.about(err)
	}
	if _, err := strconv.ParseUint(from, 10, 64); err == nil && info.Shards > 1 {
		return exit.Misuse("--from %s: each of the %d shards counts its own offsets: begin at a time, or create the group and `margay group seek` in each shard", from, info.Shards)
	}
	place, err := groupPlace(from, 0, false, info.Shards)
	if err != nil {
		return err
	}
	var want client.GroupConfig
	have, err := g.Info(ctx)
	switch {
	case err == nil:
		want = have.Config
	case !errors.Is(err, code.NotFound):
		return err
	}
	if err := set.apply(cmd.Flags(), &want); err != nil {
		return err
	}
	if have != nil {
		if differ := settingsDiffer(&have.Config, &want); len(differ) > 0 {
			return &exit.Error{
				Err:  code.New(code.AlreadyExists, "group %s of %s exists with other settings: %s", g.Name(), q.name, strings.Join(differ, ", ")),
				Data: "certainly not done; nothing was changed",
				Do:   "change it with `margay group update " + q.name + " " + g.Name() + "`, or choose another name",
			}
		}
	}
	want.From = place
	if err := g.Ensure(ctx, want); err != nil {
		return err
	}
	if have, err = g.Info(ctx); err != nil {
		return err
	}
	if a.Format() == output.Text {
		return a.Line("group %s of %s is there: %s", a.Bold(g.Name()), q.name, groupSummary(have))
	}
	return a.printGroup(have)
}

func (a *app) groupListCommand() *cobra.Command {
	var counted bool
	cmd := &cobra.Command{
		Use:     "list QUEUE",
		Aliases: []string{"ls"},
		Short:   "List the groups of a queue, and what each has before it",
		Long: `List the groups of a queue, with the messages that are ready, in flight, delayed and dead letters, the age of the oldest
of those but the dead, the consumers, and what holds the group up. "~" stands before an estimate; --exact has the backlog
looked through.`,
		Example: `  margay group list emails
  margay group list shop/emails --output json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.queueWithin(cmd, args[0], func(ctx context.Context, q *queued) error {
				all, err := q.Groups(ctx, countedOption(counted)...)
				if err != nil {
					return q.about(err)
				}
				if len(all) == 0 && a.Format() == output.Text {
					a.Note("%s has no groups; `margay group create %s GROUP` makes one", q.full, q.name)
				}
				return a.listGroups(all)
			})
		},
	}
	cmd.Flags().BoolVar(&counted, "exact", false, "count what is ready and delayed instead of estimating it; may take a while")
	return cmd
}

func countedOption(counted bool) []client.InfoOption {
	if counted {
		return []client.InfoOption{client.Counted()}
	}
	return nil
}

func (a *app) groupInfoCommand() *cobra.Command {
	var counted bool
	cmd := &cobra.Command{
		Use:   "info QUEUE GROUP",
		Short: "Show how a group is set and how it stands",
		Example: `  margay group info emails mailers
  margay group info shop/emails mailers --exact=false --output json`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withGroup(cmd, args, func(ctx context.Context, _ *queued, g *client.Group) error {
				info, err := g.Info(ctx, countedOption(counted)...)
				if err != nil {
					return err
				}
				return a.printGroup(info)
			})
		},
	}
	cmd.Flags().BoolVar(&counted, "exact", true, "count what is ready and delayed instead of estimating it; may take a while")
	return cmd
}

func (a *app) groupUpdateCommand() *cobra.Command {
	var set groupFlags
	cmd := &cobra.Command{
		Use:   "update QUEUE GROUP",
		Short: "Change a group's settings: only those that are named",
		Example: `  margay group update emails mailers --max-attempts 20
  margay group update emails mailers --backoff 1s,10s,1m --ack-wait 5m`,
		Args:              cobra.ExactArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !set.any(cmd.Flags()) {
				return exit.Misuse("nothing to change: name at least one setting")
			}
			return a.withGroup(cmd, args, func(ctx context.Context, _ *queued, g *client.Group) error {
				info, err := g.Info(ctx)
				if err != nil {
					return err
				}
				if err := set.apply(cmd.Flags(), &info.Config); err != nil {
					return err
				}
				if err := g.Update(ctx, info.Config); err != nil {
					return err
				}
				if info, err = g.Info(ctx); err != nil {
					return err
				}
				return a.printGroup(info)
			})
		},
	}
	set.define(cmd, false)
	return cmd
}

func (a *app) groupSeekCommand() *cobra.Command {
	var shard uint32
	cmd := &cobra.Command{
		Use:   "seek QUEUE GROUP PLACE",
		Short: "Let a group go on at another place",
		Long: `Let a group go on at PLACE: earliest, latest, an offset (needs --shard when the queue has several), a time such as
2026-01-31T12:00:00Z, or a duration back from now such as -15m (behind --: it looks like a flag).

What lies before the place counts as done. What lies behind it is handed out, also what was settled before, as far as the
queue still keeps it: a queue gives up what all groups have settled, a stream does not. Claims of what is out end, and
dead letters behind the place are forgotten.`,
		Example: `  margay group seek emails mailers latest
  margay group seek orders billing 120000 --shard 2`,
		Args:              cobra.ExactArgs(3),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withGroup(cmd, args, func(ctx context.Context, q *queued, g *client.Group) error {
				info, err := q.c.Info(ctx, q.full)
				if err != nil {
					return q.about(err)
				}
				place, err := groupPlace(args[2], shard, cmd.Flags().Changed("shard"), info.Shards)
				if err != nil {
					return err
				}
				if err := g.Seek(ctx, place); err != nil {
					return err
				}
				return a.groupChanged(q, g, "seek", "goes on at "+args[2])
			})
		},
	}
	cmd.SetFlagErrorFunc(dashed("a time back from now", "margay group seek QUEUE GROUP -- -15m"))
	cmd.Flags().Uint32Var(&shard, "shard", 0, "move in this shard only")
	return cmd
}

// groupChangeCommand is one that takes nothing but the group.
func (a *app) groupChangeCommand(verb, short, done string, do func(*client.Group, context.Context) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " QUEUE GROUP",
		Short:             short,
		Example:           "  margay group " + verb + " emails mailers\n  margay group " + verb + " shop/emails mailers --output json",
		Args:              cobra.ExactArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withGroup(cmd, args, func(ctx context.Context, q *queued, g *client.Group) error {
				if err := do(g, ctx); err != nil {
					return err
				}
				return a.groupChanged(q, g, verb, done)
			})
		},
	}
	if verb == "delete" {
		cmd.Aliases = []string{"rm"}
	}
	return cmd
}

func (a *app) groupChanged(q *queued, g *client.Group, verb, done string) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(map[string]string{"queue": q.full, "group": g.Name(), "done": verb})
	case output.Raw:
		return a.Raw([]byte(g.Name()))
	case output.Text: // for a person, below
	}
	return a.Line("group %s of %s %s", a.Bold(g.Name()), q.name, done)
}

// completeGroups offers the queues, and behind one of them its groups.
func (a *app) completeGroups(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 0 {
		return a.completeLogs(queues())(cmd, args, word)
	}
	if len(args) > 1 || a.readEnvironment(cmd) != nil {
		return nil, none
	}
	a.global.timeout = min(a.global.timeout, time.Second)
	var names []string
	err := a.queueWithin(cmd, args[0], func(ctx context.Context, q *queued) error {
		all, err := q.Groups(ctx)
		for _, g := range all {
			names = append(names, g.Name)
		}
		if err != nil {
			return fmt.Errorf("complete: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, none
	}
	return names, none
}
