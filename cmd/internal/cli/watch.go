// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

type watchFlags struct {
	selectFlags
	snapshot bool
	from     string
	conflate bool
	count    uint64
}

func (a *app) watchCommand() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch CACHE",
		Short: "Tell what becomes of the keys of a cache, as it happens",
		Long: `Print every change of the keys, in its order for each key, until interrupted, or until --count.

--snapshot tells first what there is, each value as a put, then "snapshot complete", then every change of it: whoever
follows has the cache, with no gap between. --from goes on behind a version, as 'margay get' shows it: for the watch of
one --key, or a cache of one shard.

Without a limit on how slow a reader may be, changes wait in the log for it. --conflate tells a slow reader of the newest
change of a key only, and how many it stands for. When changes are gone for good, as after a long absence, "reset" says
that what was known counts no more, and a snapshot follows.

Text shows what happened, the version, the key and the value; raw the value of each change and a newline, an empty line
when the key went; JSON one object a change. When the broker restarts, watching goes on by itself, and standard error
says so.`,
		Example: `  margay watch flags --prefix checkout/ --snapshot
  margay watch sessions --key user/1 --from 12 --output json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLogs(caches()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.count == 0 && cmd.Flags().Changed("count") {
				return exit.Misuse("--count 0: want at least one change")
			}
			options, err := f.options(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return a.watch(cmd.Context(), args[0], &f, options)
		},
	}
	f.define(cmd, true)
	flags := cmd.Flags()
	flags.BoolVar(&f.snapshot, "snapshot", false, "tell first what there is")
	flags.StringVar(&f.from, "from", "", "go on behind this version, or at a position that a program noted")
	flags.BoolVar(&f.conflate, "conflate", false, "tell a slow reader of the newest change of a key only")
	flags.Uint64Var(&f.count, "count", 0, "stop after this many changes, those of the snapshot among them")
	return cmd
}

func (f *watchFlags) options(given func(flag string) bool) ([]client.WatchOption, error) {
	selectors, err := f.selectors(given)
	if err != nil {
		return nil, err
	}
	var options []client.WatchOption
	for _, s := range selectors {
		options = append(options, s)
	}
	if f.snapshot && given("from") {
		return nil, exit.Misuse("--snapshot and --from: give one of them")
	}
	if f.snapshot {
		options = append(options, client.WithSnapshot())
	}
	if given("from") {
		if version, err := strconv.ParseUint(f.from, 10, 64); err == nil {
			options = append(options, client.FromVersion(version))
		} else {
			options = append(options, client.FromPosition(f.from))
		}
	}
	if f.conflate {
		options = append(options, client.Conflate())
	}
	return options, nil
}

func (a *app) watch(ctx context.Context, cache string, f *watchFlags, options []client.WatchOption) error {
	k, err := a.openCache(ctx, cache)
	if err != nil {
		return err
	}
	defer k.c.Close()
	setup, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	if _, err := strconv.ParseUint(f.from, 10, 64); err == nil && f.key == "" {
		if info, err := k.c.Info(setup, k.full); err == nil && info.Shards > 1 {
			return exit.Misuse("--from %s: each of the %d shards counts its own versions, so name one key with --key", f.from, info.Shards)
		}
	}
	w, err := k.Watch(setup, append(options, client.OnStatus(a.tellStatus(k.full, " behind the last change")))...)
	if err != nil {
		return k.about(err)
	}
	defer w.Close()
	var n uint64
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil // interrupting a watch is how it ends
			}
			return k.about(err)
		}
		if err := a.printChange(k, &ch); err != nil {
			return err
		}
		if ch.Kind == client.SnapshotComplete || ch.Kind == client.Reset {
			continue
		}
		if n++; n == f.count {
			return nil
		}
	}
	return nil
}

// changeView is a change in JSON: what happened, and to what.
type changeView struct {
	Change  string `json:"change"`
	Skipped int    `json:"skipped,omitempty"`
	*keyView
}

func (a *app) printChange(k *keyed, ch *client.Change) error {
	mark := ch.Kind == client.SnapshotComplete || ch.Kind == client.Reset
	switch a.Format() {
	case output.JSON:
		v := changeView{Change: strings.ReplaceAll(ch.Kind.String(), " ", "_"), Skipped: ch.Skipped}
		if !mark {
			e := viewKey(&ch.Entry, ch.Kind == client.Put)
			v.keyView = &e
		}
		return a.JSON(v)
	case output.Raw:
		if !mark {
			return a.Raw(ch.Entry.Value)
		}
		if err := a.Flush(); err != nil { // it stands behind what precedes it
			return err
		}
		if ch.Kind == client.Reset {
			a.Warn("%s: changes are missing: what there is follows", k.full)
		}
		return nil
	case output.Text: // for a person, below
	}
	return a.Line("%s", a.textChange(ch))
}

func (a *app) textChange(ch *client.Change) string {
	skipped := ""
	if ch.Skipped > 0 {
		skipped = "\t" + a.Dim(fmt.Sprintf("(%d skipped)", ch.Skipped))
	}
	switch ch.Kind {
	case client.Put:
		return "put\t" + a.textEntry(&ch.Entry) + skipped
	case client.Deleted, client.Expired:
		return ch.Kind.String() + "\t" + a.Dim(strconv.FormatUint(ch.Entry.Version, 10)) + "\t" + a.Bold(output.Show([]byte(ch.Entry.Key))) + skipped
	case client.SnapshotComplete, client.Reset: // below
	}
	return a.Dim(ch.Kind.String())
}
