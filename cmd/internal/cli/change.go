// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

// deletesInFlight bounds the deletions of one command that wait for their answers.
const deletesInFlight = 64

type delFlags struct {
	ifVersion uint64
	prefix    string
	all       bool
}

func (a *app) delCommand() *cobra.Command {
	var f delFlags
	cmd := &cobra.Command{
		Use:   "del CACHE KEY...",
		Short: "Delete keys of a cache, or all that begin with --prefix",
		Long: `Delete each KEY; who watches is told that it was deleted. A key that is not there is deleted all the same: to be told,
use --if-version, with the version that 'margay get' shows.

--prefix deletes the keys that begin with it, and --all every key; both say how many. That is not one step: a key that is
put meanwhile may stay or go.`,
		Example: `  margay del sessions user/1 user/2
  margay del locks cleaner --if-version 12
  margay del sessions --prefix user/1/`,
		Args:              cobra.MinimumNArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			if err := f.check(args[1:], given); err != nil {
				return err
			}
			if given("prefix") || f.all {
				return a.delPrefix(cmd, args[0], f.prefix)
			}
			var options []client.DeleteOption
			if given("if-version") {
				options = append(options, client.IfVersion(f.ifVersion))
			}
			return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
				return a.del(ctx, k, args[1:], options)
			})
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.ifVersion, "if-version", 0, "only if the key has this version")
	flags.StringVar(&f.prefix, "prefix", "", "delete the keys that begin with this")
	flags.BoolVar(&f.all, "all", false, "delete every key")
	return cmd
}

func (f *delFlags) check(keys []string, given func(flag string) bool) error {
	many := given("prefix") || f.all
	switch {
	case given("prefix") && f.all:
		return exit.Misuse("--prefix and --all: give one of them")
	case many && len(keys) > 0:
		return exit.Misuse("KEY and --prefix or --all: give one of them")
	case !many && len(keys) == 0:
		return exit.Misuse("no key: give KEY, --prefix or --all")
	case given("prefix") && f.prefix == "": // more often a variable that was not set than a wish
		return exit.Misuse("--prefix is empty: to delete every key, use --all")
	case given("if-version") && (many || len(keys) > 1):
		return exit.Misuse("--if-version is about one key")
	}
	return nil
}

// del deletes keys side by side, so that many share a flush, and prints them in their order.
func (a *app) del(ctx context.Context, k *keyed, keys []string, options []client.DeleteOption) error {
	versions, errs := make([]uint64, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	slots := make(chan struct{}, deletesInFlight)
	for i, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			versions[i], errs[i] = k.Delete(ctx, key, options...)
		})
	}
	wg.Wait()
	done := 0
	var first error
	for i, key := range keys {
		if errs[i] != nil {
			if first == nil {
				first = k.aboutKey(ctx, errs[i], key)
			}
			continue
		}
		done++
		if err := a.printDeleted(k, key, versions[i]); err != nil {
			return err
		}
	}
	if f, ok := errors.AsType[*exit.Error](first); ok && len(keys) > 1 {
		f.Data = fmt.Sprintf("%d of %s are certainly deleted", done, count(len(keys), "key"))
	}
	return first
}

func (a *app) printDeleted(k *keyed, key string, version uint64) error {
	switch a.Format() {
	case output.JSON:
		v := viewWritten(key, version)
		v.Deleted = true
		return a.JSON(v)
	case output.Raw:
		return a.Line("%d", version)
	case output.Text: // for a person, below
	}
	return a.Line("%s %s is deleted%s", a.Bold(k.name), a.Bold(output.Show([]byte(key))), a.Dim(fmt.Sprintf(" (version %d)", version)))
}

// delPrefix has no bound in time but the client's for each deletion: a cache can be large.
func (a *app) delPrefix(cmd *cobra.Command, cache, prefix string) error {
	k, err := a.openCache(cmd.Context(), cache)
	if err != nil {
		return err
	}
	defer k.c.Close()
	n, err := k.DeletePrefix(cmd.Context(), prefix)
	if err != nil {
		f := &exit.Error{Err: k.about(err), Data: count(n, "key") + " certainly deleted; the others may be there"}
		if inner, ok := errors.AsType[*exit.Error](f.Err); ok {
			f.Do = inner.Do
		}
		return f
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(struct {
			Deleted int `json:"deleted"`
		}{n})
	case output.Raw:
		return a.Line("%d", n)
	case output.Text: // for a person, below
	}
	return a.Line("%s: %s deleted", a.Bold(k.name), count(n, "key"))
}

func (a *app) incrCommand() *cobra.Command {
	var ttl duration
	cmd := &cobra.Command{
		Use:   "incr CACHE KEY [DELTA]",
		Short: "Add to the number at a key of a cache, and print the sum",
		Long: `Add DELTA, 1 without it, to the number at KEY; a key that is not there counts from 0. The sum is made in the order of the
cache's writes, so no increment is lost among many, and one that is sent again because its answer was lost counts once.

A negative DELTA stands behind --. Without --ttl and a TTL of the cache the number keeps its end.`,
		Example: `  margay incr limits calls/user-1 --ttl 1m
  margay incr stock lamps -- -2`,
		Args:              cobra.RangeArgs(2, 3),
		Annotations:       writes(),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			delta := int64(1)
			if len(args) == 3 {
				var err error
				if delta, err = strconv.ParseInt(args[2], 10, 64); err != nil {
					return exit.Misuse("DELTA %q: want a whole number of 64 bits", args[2])
				}
			}
			var options []client.AddOption
			if cmd.Flags().Changed("ttl") {
				options = append(options, life(ttl))
			}
			return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
				return a.incr(ctx, k, args[1], delta, options)
			})
		},
	}
	cmd.Flags().Var(&ttl, "ttl", "how long the number lives from now on; 0s does not change its end")
	cmd.SetFlagErrorFunc(dashed("a negative number", "margay incr CACHE KEY -- -2"))
	return cmd
}

func (a *app) incr(ctx context.Context, k *keyed, key string, delta int64, options []client.AddOption) error {
	sum, version, err := k.Add(ctx, key, delta, options...)
	if err != nil {
		return k.aboutKey(ctx, err, key)
	}
	switch a.Format() {
	case output.JSON:
		v := viewWritten(key, version)
		v.Sum = &sum
		return a.JSON(v)
	case output.Raw:
		return a.Line("%d", sum)
	case output.Text: // for a person, below
	}
	return a.Line("%s %s is %d%s", a.Bold(k.name), a.Bold(output.Show([]byte(key))), sum, a.Dim(fmt.Sprintf(" (version %d)", version)))
}

func (a *app) touchCommand() *cobra.Command {
	var ttl duration
	cmd := &cobra.Command{
		Use:   "touch CACHE KEY",
		Short: "Give the value of a key of a cache a new time to live",
		Long: `Let the value of KEY live for --ttl from now on, or for good with --ttl 0s. The value stays what it is, at a new
version. A key that is not there exits with 5.`,
		Example: `  margay touch sessions user/1 --ttl 30m
  margay touch sessions user/1 --ttl 0s`,
		Args:              cobra.ExactArgs(2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("ttl") {
				return exit.Misuse("no --ttl: say how long the value is to live, 0s for good")
			}
			return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
				return a.touch(ctx, k, args[1], ttl)
			})
		},
	}
	cmd.Flags().Var(&ttl, "ttl", "how long the value lives from now on; for good when 0s")
	return cmd
}

func (a *app) touch(ctx context.Context, k *keyed, key string, ttl duration) error {
	var version uint64
	var err error
	words := "lives for good"
	if ttl == 0 {
		version, err = k.Persist(ctx, key)
	} else {
		version, err = k.Touch(ctx, key, time.Duration(ttl))
		words = "lives for " + ttl.String()
	}
	if err != nil {
		return k.aboutKey(ctx, err, key)
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewWritten(key, version))
	case output.Raw:
		return a.Line("%d", version)
	case output.Text: // for a person, below
	}
	return a.Line("%s %s %s%s", a.Bold(k.name), a.Bold(output.Show([]byte(key))), words, a.Dim(fmt.Sprintf(" (version %d)", version)))
}
