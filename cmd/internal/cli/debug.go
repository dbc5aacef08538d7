// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) debugCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Look into a node that runs",
		Long:  `Look into a node that runs, with a token that may manage it.`,
		Example: `  margay debug log-level
  margay debug profile cpu --seconds 10`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.debugLogLevelCommand(), a.debugProfileCommand())
	return cmd
}

func (a *app) debugLogLevelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Say what a node logs, or change it until the next reload or start",
		Long: `Say the least that a node logs: debug, info, warn or error; or change it, at once. A reload (SIGHUP) or a new start
brings back what the node's configuration says.`,
		Example: `  margay debug log-level
  margay debug log-level debug`,
		Args:        cobra.MaximumNArgs(1),
		ValidArgs:   control.LogLevels(),
		Annotations: writes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			level := ""
			if len(args) == 1 {
				level = args[0]
				if err := new(control.LogLevel).UnmarshalText([]byte(level)); err != nil {
					return &exit.Error{Err: fmt.Errorf("LEVEL %w", err), Code: exit.Usage, Do: "name one of them, or none to see which it is"}
				}
			}
			return a.debugLogLevel(cmd.Context(), level)
		},
	}
}

func (a *app) debugLogLevel(ctx context.Context, level string) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	c, err := a.rest(t)
	if err != nil {
		return err
	}
	defer c.Close()
	var got control.LogLevelDocument
	if level == "" {
		got, err = c.LogLevel(ctx)
	} else {
		got, err = c.SetLogLevel(ctx, level)
	}
	if err != nil {
		return reached(err, t.HTTP)
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(got)
	case output.Raw:
		return a.Raw([]byte(got.Level))
	default:
		return a.Line("the node logs %s and above", got.Level)
	}
}
