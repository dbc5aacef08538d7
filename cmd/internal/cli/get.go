// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
)

type getFlags struct {
	stale   bool
	atLeast uint64
}

func (a *app) getCommand() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get CACHE KEY...",
		Short: "Print the values of keys of a cache",
		Long: `Print what each KEY has. Text shows the version, the key, the value and what is left of its life; raw the value and a
newline. Keys that are not there are named on standard error, and the command exits with 5.

A read sees every write that was acknowledged before it began. --stale lets any replica answer, which may not have the
newest; with --at-least it waits until it has this version of a key of the same shard. On one node both see the same.`,
		Example: `  margay get sessions user/1
  margay get flags checkout/new checkout/old --output json`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.atLeast > 0 && len(args) > 2 {
				return exit.Misuse("--at-least is about one key: versions of different shards do not compare")
			}
			return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
				return a.get(ctx, k, args[1:], &f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.stale, "stale", false, "let any replica answer")
	cmd.Flags().Uint64Var(&f.atLeast, "at-least", 0, "wait until who answers has this version")
	return cmd
}

func (a *app) get(ctx context.Context, k *keyed, keys []string, f *getFlags) error {
	found, err := k.lookUp(ctx, keys, f)
	if err != nil {
		return err
	}
	var missing []string
	for _, key := range keys {
		e, ok := found[key]
		if !ok {
			missing = append(missing, key)
			continue
		}
		if err := a.printEntry(&e); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return k.absent(len(keys), missing...)
	}
	return nil
}

// lookUp reads keys together, unless options ask for each by itself.
func (k *keyed) lookUp(ctx context.Context, keys []string, f *getFlags) (map[string]client.Entry, error) {
	if !f.stale && f.atLeast == 0 {
		found, err := k.GetMany(ctx, keys...)
		if err != nil {
			return nil, k.about(err)
		}
		return found, nil
	}
	var options []client.GetOption
	if f.stale {
		options = append(options, client.Stale())
	}
	if f.atLeast > 0 {
		options = append(options, client.AtLeast(f.atLeast))
	}
	found := map[string]client.Entry{}
	for _, key := range keys {
		e, err := k.Get(ctx, key, options...)
		switch {
		case err == nil:
			found[key] = e
		case !errors.Is(err, code.NotFound):
			return nil, k.about(err)
		default:
			if _, err := k.c.Info(ctx, k.full); err != nil { // it is the cache that is not there
				return nil, k.about(err)
			}
		}
	}
	return found, nil
}

func (a *app) printEntry(e *client.Entry) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewKey(e, true))
	case output.Raw:
		return a.Raw(e.Value)
	case output.Text: // for a person, below
	}
	return a.Line("%s", a.textEntry(e))
}

type keysFlags struct {
	selectFlags
	values bool
	count  bool
	stale  bool
	after  string
	limit  uint64
}

func (a *app) cacheKeysCommand() *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{
		Use:   "keys CACHE",
		Short: "List the keys of a cache, with --values what they have, or --count them",
		Long: `Print the keys in the order of their bytes. Text and raw show one key a line; with --values text shows what 'margay get'
shows, and raw KEY, a tab and VALUE, which 'margay put --lines' reads (as long as no value has a newline and no key a tab:
--output json knows no such bounds).

The list is read page by page, so it is not of one moment: a key that changes meanwhile comes once, as it was when its page
was read. --count is of the moment in which each shard is asked.`,
		Example: `  margay cache keys sessions --prefix user/
  margay cache keys flags --values --output raw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLogs(caches()),
		RunE: func(cmd *cobra.Command, args []string) error {
			selectors, err := f.selectors(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if f.count && (f.values || f.stale || cmd.Flags().Changed("after") || f.limit > 0) {
				return exit.Misuse("--count stands alone, or with --prefix or --pattern")
			}
			if f.count {
				return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error { return a.countKeys(ctx, k, selectors) })
			}
			return a.listKeys(cmd, args[0], &f, selectors)
		},
	}
	f.define(cmd, false)
	flags := cmd.Flags()
	flags.BoolVar(&f.values, "values", false, "show the values too")
	flags.BoolVar(&f.count, "count", false, "print how many there are")
	flags.BoolVar(&f.stale, "stale", false, "let any replica answer")
	flags.StringVar(&f.after, "after", "", "begin behind this key, which need not be there")
	flags.Uint64Var(&f.limit, "limit", 0, "stop after this many keys")
	return cmd
}

// selectFlags say which keys are meant; none of them: all.
type selectFlags struct{ key, prefix, pattern string }

func (f *selectFlags) define(cmd *cobra.Command, one bool) {
	if one {
		cmd.Flags().StringVar(&f.key, "key", "", "only this key")
	}
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only keys that begin with this")
	cmd.Flags().StringVar(&f.pattern, "pattern", "", `only keys that match this topic pattern: "+" is one level, a last "#" the rest`)
}

func (f *selectFlags) selectors(given func(flag string) bool) ([]client.Selector, error) {
	var all []client.Selector
	if given("key") {
		all = append(all, client.Key(f.key))
	}
	if given("prefix") {
		all = append(all, client.Prefix(f.prefix))
	}
	if given("pattern") {
		all = append(all, client.Pattern(f.pattern))
	}
	if len(all) > 1 {
		return nil, exit.Misuse("--key, --prefix and --pattern: give one of them")
	}
	return all, nil
}

func (a *app) countKeys(ctx context.Context, k *keyed, selectors []client.Selector) error {
	n, err := k.Count(ctx, selectors...)
	if err != nil {
		return k.about(err)
	}
	if a.Format() == output.JSON {
		return a.JSON(struct {
			Keys uint64 `json:"keys"`
		}{n})
	}
	return a.Line("%d", n)
}

// listKeys has no bound in time but the client's for each page: a cache can be large, and its reader slow.
func (a *app) listKeys(cmd *cobra.Command, cache string, f *keysFlags, selectors []client.Selector) error {
	k, err := a.openCache(cmd.Context(), cache)
	if err != nil {
		return err
	}
	defer k.c.Close()
	var options []client.ListOption
	for _, s := range selectors {
		options = append(options, s)
	}
	if !f.values {
		options = append(options, client.KeysOnly())
	}
	if f.stale {
		options = append(options, client.Stale())
	}
	if cmd.Flags().Changed("after") {
		options = append(options, client.After(f.after))
	}
	n := uint64(0)
	for e, err := range k.List(cmd.Context(), options...) {
		if err != nil {
			return k.about(err)
		}
		if err := a.printListed(&e, f.values); err != nil {
			return err
		}
		if n++; n == f.limit {
			return nil
		}
	}
	return nil
}

func (a *app) printListed(e *client.Entry, values bool) error {
	switch {
	case a.Format() == output.JSON:
		return a.JSON(viewKey(e, values))
	case a.Format() == output.Raw && values:
		return a.Raw(append(append([]byte(e.Key), '\t'), e.Value...))
	case a.Format() == output.Raw:
		return a.Raw([]byte(e.Key))
	case values:
		return a.Line("%s", a.textEntry(e))
	}
	return a.Line("%s", output.Show([]byte(e.Key)))
}
