// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how the node is, on one screen; fails when it is not healthy",
		Long: `Say how the node is: a verdict, the checks behind it, shards with the reason for each that is not open,
disk, memory, descriptors and clients. It needs a credential that may manage the node.

healthy: everything that it should serve is served. degraded: some of it is not, such as a damaged shard.
unhealthy: it is not ready, as /readyz says too. Exits with 0 when it is healthy, and with 4 when it is not.

Text is for a person, raw the verdict alone, JSON all of it.`,
		Example: `  margay status
  margay status --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context()) },
	}
}

func (a *app) status(ctx context.Context) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	c, err := a.rest(t)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Status(ctx)
	if err != nil {
		return reached(err, t.HTTP)
	}
	switch a.Format() {
	case output.JSON:
		err = a.JSON(s)
	case output.Raw:
		err = a.Raw([]byte(s.Verdict))
	case output.Text:
		err = a.printStatus(s)
	}
	if err != nil || s.Verdict == control.Healthy {
		return err
	}
	return notHealthy(s)
}

// notHealthy is the verdict as an error, with the reasons.
func notHealthy(s control.Status) error {
	var reasons []string
	for _, c := range s.Checks {
		if !c.OK {
			reasons = append(reasons, c.Reason)
		}
	}
	f := &exit.Error{
		Err: errors.New("the node is " + s.Verdict + ": " + strings.Join(reasons, "; ")), Code: exit.Refused,
		Data: "what is open is served", Do: "see the reasons above, and the node's log",
	}
	if s.Disk.Full {
		f.Data, f.Do = "records are refused, nothing is lost", "free or add space; writing goes on by itself"
	}
	if s.Shards.States["quarantined"] > 0 {
		f.Do = "stop the node and run `margay log verify DIR` on the shards that are quarantined"
	}
	return f
}

func (a *app) printStatus(s control.Status) error {
	verdict := a.Good(s.Verdict)
	if s.Verdict != control.Healthy {
		verdict = a.Bad(s.Verdict)
	}
	rows := [][]string{
		{"node", fmt.Sprintf("%s of cluster %s, version %s, up %s", s.Node, s.Cluster, s.Version, since(s.StartedAt, s.Time))},
		{"address", strings.Join(s.Addresses, " and ")},
		{"verdict", verdict},
	}
	for i, c := range s.Checks {
		what := c.Name + " " + a.Good("ok")
		if !c.OK {
			what = c.Name + " " + a.Bad("failed") + ": " + c.Reason
		}
		rows = append(rows, []string{label(i, "checks"), what})
	}
	rows = append(rows,
		[]string{"shards", shardStates(s.Shards)},
		[]string{"disk", diskText(s.Disk)},
		[]string{"memory", memoryText(s.Memory)},
		[]string{"files", useText(s.Files, func(n int64) string { return strconv.FormatInt(n, 10) })},
		[]string{"clients", fmt.Sprintf("%s, %s", count(int(s.Connections), "connection"), count(int(s.Subscriptions), "subscription"))},
		[]string{"in flight", useText(s.InFlight, about) + ", " + about(s.QueuedBytes) + " queued for subscriptions"},
	)
	if err := a.Table(nil, rows); err != nil || len(s.Shards.Unwell) == 0 {
		return err
	}
	var unwell [][]string
	for _, u := range s.Shards.Unwell {
		unwell = append(unwell, []string{u.State, fmt.Sprintf("%s shard %d", u.Log, u.Shard), u.Reason})
	}
	if err := a.Table(nil, unwell); err != nil || s.Shards.More == 0 {
		return err
	}
	return a.Line("and %d more", s.Shards.More)
}

// label stands at the first of several rows.
func label(i int, text string) string {
	if i > 0 {
		return ""
	}
	return text
}

func since(from, to time.Time) string {
	return control.Duration(max(to.Sub(from), 0).Truncate(time.Second)).String()
}

// shardStates counts the shards by state, those that are open first.
func shardStates(s control.StatusShards) string {
	states := make([]string, 0, len(s.States))
	for state, n := range s.States {
		if n > 0 || state == "open" {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	slices.SortFunc(states, func(a, b string) int {
		rank := func(s string) int {
			if strings.HasSuffix(s, " open") {
				return 0
			}
			return 1
		}
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a[strings.IndexByte(a, ' '):], b[strings.IndexByte(b, ' '):])
	})
	if s.Unknown > 0 {
		states = append(states, fmt.Sprintf("unknown to the catalog and kept: %s on disk", count(s.Unknown, "shard")))
	}
	return strings.Join(states, ", ")
}

func diskText(d control.StatusDisk) string {
	text := about(int64(d.FreeBytes)) + " free, records are refused below " + about(int64(d.ReserveBytes))
	if d.Full {
		text += ": full"
	}
	return text
}

func memoryText(m control.StatusMemory) string {
	text := about(m.HeapBytes) + " heap"
	if m.ResidentBytes > 0 {
		text = about(m.ResidentBytes) + " resident, " + text
	}
	if m.LimitBytes > 0 {
		text += ", the runtime keeps to " + about(m.LimitBytes)
	}
	return text
}

// about is a size as a person reads it.
func about(n int64) string {
	v, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for ; v >= 1024 && unit+1 < len(units); unit++ {
		v /= 1024
	}
	if unit == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[unit]
}

func useText(u control.StatusUse, show func(int64) string) string {
	if u.Limit <= 0 {
		return show(u.Used)
	}
	return show(u.Used) + " of " + show(u.Limit)
}
