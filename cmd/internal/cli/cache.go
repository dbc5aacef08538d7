// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"margay.dev/wire/control"
)

func caches() collection {
	return collection{
		preset: control.PresetCache, name: "sessions",
		created:    [2]string{"sessions --shards 4 --ttl 30m", "flags --max-keys 10000"},
		changed:    "--ttl 1h",
		boundNames: []string{"MAX KEYS", "TTL"},
		bounds:     func(d *control.LogDocument) []string { return []string{maxKeys(d), ttl(d)} },
	}
}

func (a *app) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Create, list, change and delete caches, and list their keys",
		Long: `A cache is a log that keeps the newest record of each key. It is named NAME, NAMESPACE/NAME or
TENANT/NAMESPACE/NAME, as a stream is, and no stream or queue of the namespace has the same name; what is left out
comes from the context. Names are ` + control.NameRule + `.

What is in one: margay put, get, del, incr, touch and watch, and margay cache keys.`,
		Example: caches().examples("create sessions --ttl 30m", "list"),
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.collectionCommands(caches())...)
	cmd.AddCommand(a.cacheKeysCommand())
	return cmd
}
