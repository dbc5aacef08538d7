// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

type profileFlags struct {
	seconds int
	out     string
}

// maxProfile is the longest profile a node takes, in seconds: it answers within five minutes.
const maxProfile = 240

func (a *app) debugProfileCommand() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "profile " + strings.Join(control.Profiles(), "|"),
		Short: "Take a profile of a node and write it to a file",
		Long: `Take a profile of a node that runs and write it to a file, for ` + "`go tool pprof`" + ` (a trace: for
` + "`go tool trace`" + `).

cpu, block, mutex and trace are taken over --seconds; heap, allocs and goroutine are the state of the moment, or with
--seconds what changed meanwhile. The samplers of block and mutex are on only while they are taken.`,
		Example: `  margay debug profile cpu --seconds 10
  margay debug profile heap --out heap.pprof`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: control.Profiles(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.seconds < 0 || f.seconds > maxProfile {
				return &exit.Error{Err: fmt.Errorf("--seconds %d", f.seconds), Code: exit.Usage, Do: fmt.Sprintf("ask for 1 to %d", maxProfile)}
			}
			switch args[0] {
			case "heap", "allocs", "goroutine":
				if !cmd.Flags().Changed("seconds") {
					f.seconds = 0
				}
			default:
				f.seconds = max(1, f.seconds)
			}
			return a.profile(cmd.Context(), args[0], &f)
		},
	}
	cmd.Flags().IntVar(&f.seconds, "seconds", 10, "how long to take it")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write (default KIND.pprof, or trace.out)")
	return cmd
}

// profileView is a profile that was taken, in JSON.
type profileView struct {
	Profile string `json:"profile"`
	File    string `json:"file"`
	Bytes   int    `json:"bytes"`
}

func (a *app) profile(ctx context.Context, kind string, f *profileFlags) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	c, err := a.rest(t)
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := c.Profile(ctx, kind, time.Duration(f.seconds)*time.Second)
	if err != nil {
		return reached(err, t.HTTP)
	}
	if a.Format() == output.Raw {
		return a.Raw(b)
	}
	out := f.out
	if out == "" {
		out = kind + ".pprof"
		if kind == "trace" {
			out = "trace.out"
		}
	}
	if err := os.WriteFile(out, b, 0o600); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	if a.Format() == output.JSON {
		return a.JSON(profileView{Profile: kind, File: out, Bytes: len(b)})
	}
	tool := "pprof"
	if kind == "trace" {
		tool = "trace"
	}
	return a.Line("wrote %s (%d bytes); `go tool %s %s` reads it", out, len(b), tool, out)
}
