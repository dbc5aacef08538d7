// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"margay.dev/wire/control"
)

func streams() collection {
	return collection{
		preset: control.PresetStream, name: "orders",
		created:    [2]string{"orders --shards 4 --max-age 7d", "metrics --fsync interval --max-bytes 10GiB"},
		changed:    "--max-age 30d",
		boundNames: []string{"MAX AGE", "MAX BYTES"},
		bounds: func(d *control.LogDocument) []string {
			return []string{limit(d.MaxAge), limitBytes(d.MaxBytes)}
		},
	}
}

func (a *app) streamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Create, list, change and delete streams",
		Long: `A stream is named NAME, NAMESPACE/NAME or TENANT/NAMESPACE/NAME; what is left out comes from the
context. Names are ` + control.NameRule + `.`,
		Example: streams().examples("create orders --shards 4", "list"),
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.collectionCommands(streams())...)
	cmd.AddCommand(a.streamCursorsCommand(), a.streamCursorDeleteCommand())
	return cmd
}

// completeStreams offers the streams of the context's namespace.
func (a *app) completeStreams(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completeLogs(streams())(cmd, args, word)
}
