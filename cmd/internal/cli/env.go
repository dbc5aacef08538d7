// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"margay.dev/cmd/internal/exit"
)

const (
	envPrefix      = "MARGAY_"
	envAnnotation  = "margay_env"
	defaultTimeout = 5 * time.Second
)

func (a *app) addGlobals(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.VarP(&a.global.output, "output", "o", "how results are written")
	flags.StringVar(&a.global.context, "context", "", "context to use: a name, or the path of a context file")
	flags.StringVar(&a.global.address, "address", "", "broker to use instead of the context's, such as margay://127.0.0.1:7420, or margay+tls://127.0.0.1:7420 over TCP")
	flags.StringVar(&a.global.token, "token", "", "token to use instead of the context's API key")
	flags.StringVar(&a.global.ca, "ca", "", "file of the CA certificates to trust instead of the context's")
	flags.DurationVar(&a.global.timeout, "timeout", defaultTimeout, "how long to try to reach somebody, and to wait for one answer")
	fromEnvironment(flags, "output", "context", "address", "token", "ca", "timeout")
	complete(root, "output", "text", "json", "raw")
}

// fromEnvironment lets MARGAY_<NAME> stand in for a flag that is not given. It is opt-in: a flag such
// as --key must not change because something of that name is in the environment.
func fromEnvironment(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, envAnnotation, []string{envName(name)}); err != nil {
			panic(err) // the flag is not defined: a mistake of this package, found by any test
		}
	}
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment sets the flags that were not given from the environment. An empty variable counts as
// not set, as shells cannot easily unset one for a single command.
func (a *app) readEnvironment(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[envAnnotation]
		if bad != nil || f.Changed || len(names) == 0 {
			return
		}
		value := a.Getenv(names[0])
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = exit.Misuse("%s=%q: %w", names[0], value, err)
		}
		f.Changed = true // said by the user, only elsewhere
	})
	return bad
}

// complete offers fixed values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // as in fromEnvironment
	}
}
