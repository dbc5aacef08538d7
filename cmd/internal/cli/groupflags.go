// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"margay.dev/client"
	"margay.dev/cmd/internal/arg"
	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// The orders in which a group hands out.
const (
	orderNone = "none"
	orderKey  = "key"
)

// groupFlags are the settings of a group as flags. What is not given keeps the default, or what it is.
type groupFlags struct {
	ackWait     duration
	maxAttempts int
	backoff     durations
	order       string
	fairKeys    bool
	priorityAge duration
	deadExpired bool
	maxDead     int
}

var groupSettings = []string{"ack-wait", "max-attempts", "backoff", "order", "fair-keys", "priority-age", "dead-letter-expired", "max-dead-letters"}

func (f *groupFlags) define(cmd *cobra.Command, create bool) {
	if create {
		d := batch.DefaultGroupSettings()
		f.ackWait, f.priorityAge = micros(d.AckWait), micros(d.PriorityAge)
		f.maxAttempts, f.maxDead, f.order = int(d.MaxAttempts), int(d.MaxDead), orderNone
		for _, us := range d.Backoff {
			f.backoff = append(f.backoff, time.Duration(micros(us)))
		}
	}
	flags := cmd.Flags()
	flags.Var(&f.ackWait, "ack-wait", "how long a consumer may hold a message without a word: 100ms to 12h")
	flags.IntVar(&f.maxAttempts, "max-attempts", f.maxAttempts, "attempts after which a message is a dead letter; 0 is any number")
	flags.Var(&f.backoff, "backoff", "waits before each further attempt, the last of which repeats, such as 1s,10s,1m")
	flags.StringVar(&f.order, "order", f.order, "key: one message of a key at a time, in their order; none: each when there is room")
	flags.BoolVar(&f.fairKeys, "fair-keys", false, "let keys take turns")
	flags.Var(&f.priorityAge, "priority-age", "how long a message waits for those of higher priority, at most")
	flags.BoolVar(&f.deadExpired, "dead-letter-expired", false, "make dead letters of messages whose --ttl ends")
	flags.IntVar(&f.maxDead, "max-dead-letters", f.maxDead, "dead letters, in a shard, at which the group stands still: 1 to 100000")
	complete(cmd, "order", orderKey, orderNone)
}

func micros(us uint64) duration { return duration(time.Duration(us) * time.Microsecond) } //nolint:gosec // of the defaults

func (f *groupFlags) any(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(groupSettings, flags.Changed)
}

// apply changes what is given.
func (f *groupFlags) apply(flags *pflag.FlagSet, c *client.GroupConfig) error {
	given := flags.Changed
	if given("ack-wait") {
		c.AckWait = time.Duration(f.ackWait)
	}
	if given("max-attempts") {
		if c.MaxAttempts = f.maxAttempts; c.MaxAttempts == 0 {
			c.MaxAttempts = client.Unlimited
		}
	}
	if given("backoff") {
		c.Backoff = f.backoff
	}
	if given("order") {
		if f.order != orderKey && f.order != orderNone {
			return exit.Misuse("--order %q: want key or none", f.order)
		}
		c.OrderByKey = f.order == orderKey
	}
	if given("fair-keys") {
		c.FairKeys = f.fairKeys
	}
	if given("priority-age") {
		c.PriorityAge = time.Duration(f.priorityAge)
	}
	if given("dead-letter-expired") {
		c.DeadLetterExpired = f.deadExpired
	}
	if given("max-dead-letters") {
		c.MaxDeadLetters = f.maxDead
	}
	return nil
}

// durations is a list of spans as a flag.
type durations []time.Duration

func (d *durations) String() string {
	words := make([]string, len(*d))
	for i, x := range *d {
		words[i] = control.Duration(x).String()
	}
	return strings.Join(words, ",")
}

func (d *durations) Type() string { return "durations" }

func (d *durations) Set(s string) error {
	var all durations
	for word := range strings.SplitSeq(s, ",") {
		x, err := control.ParseDuration(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	*d = all
	return nil
}

// groupPlace is where a group begins or goes on. Each shard counts its own offsets, so one is about a shard.
func groupPlace(s string, shard uint32, oneShard bool, shards int) (client.Place, error) {
	start, err := arg.ParseStart(s, time.Now())
	if err != nil {
		return client.Place{}, exit.Misuse("%w", err)
	}
	if oneShard && int64(shard) >= int64(shards) {
		return client.Place{}, noShard(shard, shards)
	}
	switch start.Kind {
	case arg.Earliest:
		return client.PlaceEarliest(), nil
	case arg.Latest:
		return client.PlaceLatest(), nil
	case arg.AtTime:
		return client.PlaceTime(start.Time), nil
	case arg.AtOffset: // below
	}
	if !oneShard && shards > 1 {
		return client.Place{}, exit.Misuse("offset %d: each of the %d shards counts its own offsets, so name one with --shard", start.Offset, shards)
	}
	return client.PlaceOffset(shard, start.Offset), nil
}

// settingsDiffer says in which settings a group differs from what was asked for.
func settingsDiffer(have, want *client.GroupConfig) []string {
	var differ []string
	diff := func(flag string, h, w any) {
		if h, w := fmt.Sprint(h), fmt.Sprint(w); h != w {
			differ = append(differ, fmt.Sprintf("%s is %s, asked for %s", flag, h, w))
		}
	}
	diff("ack-wait", control.Duration(have.AckWait), control.Duration(want.AckWait))
	diff("max-attempts", attemptsWord(have.MaxAttempts), attemptsWord(want.MaxAttempts))
	diff("backoff", backoffWord(have.Backoff), backoffWord(want.Backoff))
	diff("order", orderWord(have.OrderByKey), orderWord(want.OrderByKey))
	diff("fair-keys", have.FairKeys, want.FairKeys)
	diff("priority-age", control.Duration(have.PriorityAge), control.Duration(want.PriorityAge))
	diff("dead-letter-expired", have.DeadLetterExpired, want.DeadLetterExpired)
	diff("max-dead-letters", have.MaxDeadLetters, want.MaxDeadLetters)
	return differ
}

func attemptsWord(n int) string {
	if n == client.Unlimited {
		return "any number"
	}
	return fmt.Sprint(n)
}

func backoffWord(d durations) string { return d.String() }

func orderWord(byKey bool) string {
	if byKey {
		return orderKey
	}
	return orderNone
}
