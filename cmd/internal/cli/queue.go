// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"margay.dev/wire/control"
)

func queues() collection {
	return collection{
		preset: control.PresetQueue, name: "emails",
		created:    [2]string{"emails --shards 4", "jobs --max-bytes 10GiB"},
		changed:    "--max-age 30d",
		boundNames: []string{"MAX AGE", "MAX BYTES"},
		bounds: func(d *control.LogDocument) []string {
			return []string{limit(d.MaxAge), limitBytes(d.MaxBytes)}
		},
	}
}

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Create, list, change and delete queues, and look at their messages",
		Long: `A queue is a log that keeps each message until every consumer group, and at least one, has settled it.
It is named NAME, NAMESPACE/NAME or TENANT/NAMESPACE/NAME, as a stream is, and no stream or cache of the
namespace has the same name; what is left out comes from the context. Names are
` + control.NameRule + `.

A limit of age or size takes messages that nobody has settled, too: for their groups they are lost, and counted.

What is in one: margay push, consume, work, group and deadletter, and margay queue peek, find, cancel and reschedule.`,
		Example: queues().examples("create emails --shards 4", "list"),
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.collectionCommands(queues())...)
	cmd.AddCommand(a.queuePeekCommand(), a.queueFindCommand(), a.queueCancelCommand(), a.queueRescheduleCommand())
	return cmd
}
