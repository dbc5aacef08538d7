// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cluster/sim"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

// simFlags are those of the simulation.
type simFlags struct {
	campaign sim.Campaign
	minutes  float64
	seed     uint64
	trace    bool
}

func (a *app) simCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Look for a broken promise: a node and its clients in virtual time, under faults that a seed draws",
		Long: `Run a node and its clients in virtual time, with kills, power cuts, failing disks and broken connections that a
seed draws, and hold what the clients saw to what is promised. It uses no disk and no network.

A seed replays exactly. One that breaks a promise is printed with its command, and the exit code is 1.`,
		Example: `  margay sim --seeds 500
  margay sim --seed 9 --trace
  margay sim --minutes 60 --from 100000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.campaign.For = time.Duration(f.minutes * float64(time.Minute))
			switch {
			case f.campaign.Workers < 1:
				return exit.Misuse("--workers %d: must be above zero", f.campaign.Workers)
			case f.minutes < 0:
				return exit.Misuse("--minutes %v: must not be below zero", f.minutes)
			case cmd.Flags().Changed("seed"):
				return a.simOne(f.seed, f.trace)
			case f.trace:
				return exit.Misuse("--trace needs --seed: it is of one run")
			case f.minutes > 0 && !cmd.Flags().Changed("seeds"):
				f.campaign.Seeds = 0
			}
			return a.sim(cmd.Context(), f.campaign)
		},
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.campaign.Seeds, "seeds", 500, "how many seeds to run")
	fl.Uint64Var(&f.campaign.From, "from", 0, "the first of them")
	fl.Float64Var(&f.minutes, "minutes", 0, "run for so long, however many seeds that is, unless --seeds says")
	fl.IntVar(&f.campaign.Workers, "workers", runtime.GOMAXPROCS(0), "seeds at a time")
	fl.Uint64Var(&f.seed, "seed", 0, "run this one seed")
	fl.BoolVar(&f.trace, "trace", false, "with --seed: print all that happens")
	cmd.MarkFlagsMutuallyExclusive("seed", "seeds")
	cmd.MarkFlagsMutuallyExclusive("seed", "from")
	cmd.MarkFlagsMutuallyExclusive("seed", "minutes")
	return cmd
}

// sim runs many seeds.
func (a *app) sim(ctx context.Context, c sim.Campaign) error {
	var failed []error
	c.Each = func(r sim.Result) {
		if len(r.Violations) > 0 && a.Format() != output.JSON {
			failed = append(failed, a.simFailure(r))
		}
	}
	s := c.Run(ctx)
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if a.Format() == output.JSON {
		if err := a.JSON(s); err != nil {
			return err
		}
	} else if err := a.simSummary(s); err != nil {
		return err
	}
	if n := len(s.Failures); n > 0 {
		return simBroken("%d of %d seeds break a promise", n, s.Seeds)
	}
	return ctx.Err()
}

func simBroken(format string, args ...any) error {
	return &exit.Error{Err: fmt.Errorf(format, args...), Code: exit.Unknown, Do: "replay it with `margay sim --seed N --trace`"}
}

func (a *app) simSummary(s sim.Summary) error {
	var faults []string
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(s.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, s.Faults[kind]))
		total += s.Faults[kind]
	}
	return errors.Join(
		a.Line("%d seeds in %.1f s, %.1f seeds/s: %d steps, %d starts of the node", s.Seeds, s.Seconds, float64(s.Seeds)/max(s.Seconds, 1e-9), s.Steps, s.Starts),
		a.Line("%d records acknowledged, %d read", s.Acked, s.Reads),
		a.Line("%d messages handed out, %d settlements acknowledged", s.HandOuts, s.Settles),
		a.Line("%d faults: %s", total, strings.Join(faults, ", ")),
		a.Line("%d seeds break a promise", len(s.Failures)),
	)
}

// simFailure prints what a seed found.
func (a *app) simFailure(r sim.Result) error {
	errs := []error{a.Line("margay sim --seed %d", r.Seed)}
	for _, line := range r.Last {
		errs = append(errs, a.Line("  %s", line))
	}
	for _, v := range r.Violations {
		errs = append(errs, a.Line("  broken: %s", v))
	}
	return errors.Join(append(errs, a.Flush())...)
}

// simOne runs one seed.
func (a *app) simOne(seed uint64, trace bool) error {
	var o sim.Options
	var printed error
	if trace {
		o.Trace = func(line string) { printed = errors.Join(printed, a.Line("%s", line)) }
	}
	r := sim.Run(seed, o)
	switch {
	case printed != nil:
		return printed
	case a.Format() == output.JSON:
		printed = a.JSON(r)
	case len(r.Violations) > 0:
		printed = a.simFailure(r)
	default:
		printed = a.Line("seed %d, trace %016x: %d steps, %d starts of the node, %d records acknowledged, %d read, %d messages handed out, %d settlements acknowledged, faults %v",
			r.Seed, r.Hash, r.Steps, r.Starts, r.Acked, r.Reads, r.HandOuts, r.Settles, r.Faults)
	}
	if printed == nil && len(r.Violations) > 0 {
		return simBroken("seed %d breaks a promise", seed)
	}
	return printed
}
