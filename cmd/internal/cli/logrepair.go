// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/storage/inspect"
	"margay.dev/storage/vfs"
)

func (a *app) logRepairCommand() *cobra.Command {
	var accept bool
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Give up what is damaged in a shard's only copy, so that the rest can be served again",
		Long: `Without --accept-loss, say which offsets a repair would give up, and change nothing. With it, set the
originals aside below DIR/lost, cut the damage, and note the gap: readers are told of it, and no offset
is ever given twice. The node must not run.`,
		Example: `  margay log repair DATA/shards/ID/0
  margay log repair DATA/shards/ID/0 --accept-loss`,
		Args:        cobra.ExactArgs(1),
		Annotations: writes(),
		RunE: func(_ *cobra.Command, args []string) error {
			refused := 0
			err := a.eachShard(args[0], func(dir string) error {
				repaired, err := a.repairShard(dir, accept)
				if err == nil && !repaired {
					refused++
				}
				return err
			})
			if err != nil || refused == 0 {
				return err
			}
			return &exit.Error{
				Err:  fmt.Errorf("%s can only be repaired with a loss", count(refused, "shard")),
				Code: exit.Refused,
				Data: "nothing was changed",
				Do:   "restore them from a copy; where there is none, accept the loss: `margay log repair " + quoteForShell(args[0]) + " --accept-loss`",
			}
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "give up what is named without this flag")
	return cmd
}

// repairShard reports false when there is something to give up and that was not accepted.
func (a *app) repairShard(dir string, accept bool) (bool, error) {
	if !accept {
		plan, err := inspect.Plan(vfs.OS(), dir)
		if err != nil {
			return false, repairFailure(err)
		}
		return len(plan.Losses) == 0, a.printRepair(dir, plan, false)
	}
	done, err := inspect.Repair(vfs.OS(), dir, time.Now())
	if err != nil {
		return false, repairFailure(err)
	}
	return true, a.printRepair(dir, done, true)
}

func repairFailure(err error) error {
	f := &exit.Error{Err: err, Code: exit.Refused, Data: "run it again to complete it; originals that were set aside are below lost"}
	if errors.Is(err, vfs.ErrLocked) {
		f.Data, f.Do = "nothing was changed", "stop the node first"
	}
	return f
}

// repairView is a repair in JSON.
type repairView struct {
	Dir    string     `json:"dir"`
	Done   bool       `json:"done"`
	Losses []lossView `json:"losses"`
	Aside  string     `json:"aside,omitempty"`
	Files  []string   `json:"files"`
	Saved  []string   `json:"saved"`
}

type lossView struct {
	FromOffset   uint64 `json:"from_offset"`
	ToOffset     uint64 `json:"to_offset"`
	FromSequence uint64 `json:"from_sequence"`
	ToSequence   uint64 `json:"to_sequence"`
	AtMost       bool   `json:"at_most"`
	Reason       string `json:"reason"`
}

func (a *app) printRepair(dir string, r *inspect.Repaired, done bool) error {
	switch a.Format() {
	case output.JSON:
		v := repairView{
			Dir: dir, Done: done, Aside: r.Aside, Losses: []lossView{},
			Files: append([]string{}, r.Files...), Saved: append([]string{}, r.Saved...),
		}
		for _, l := range r.Losses {
			v.Losses = append(v.Losses, lossView{l.FromOffset, l.ToOffset, l.FromSequence, l.ToSequence, l.AtMost, l.Reason})
		}
		return a.JSON(v)
	case output.Raw:
		return a.Raw([]byte(dir))
	case output.Text: // for a person, below
	}
	if len(r.Losses) == 0 && len(r.Files) == 0 {
		return a.Line("%s: nothing to repair", dir)
	}
	verb := "would give up"
	if done {
		verb = "gave up"
	}
	for _, l := range r.Losses {
		if err := a.Line("%s: %s %s", dir, verb, l); err != nil {
			return err
		}
	}
	if !done {
		return nil
	}
	return a.Line("%s: changed %s; the originals are in %s", dir, strings.Join(r.Files, ", "), r.Aside)
}
