// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"margay.dev/cmd/internal/config"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

// configFlags are the flags of `margay serve` that say its configuration, and of the commands that look at it. They are
// text here and read with everything else, so that all faults are told at once.
type configFlags struct {
	file string
	set  []string
}

// ownFlags are the settings that are asked for often enough for a flag of their own.
var ownFlags = []struct{ name, path, usage string }{
	{"data", "data", "data directory (default $XDG_DATA_HOME/margay)"},
	{"listen", "listen", "UDP address for clients; port 0 takes a free one"},
	{"http", "http", "TCP address of the control plane; port 0 takes a free one"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json, on standard error"},
}

func (f *configFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "config", "", "configuration file (YAML)")
	flags.StringArrayVar(&f.set, "set", nil, "any setting, as KEY=VALUE with the file's key, such as limits.connections=100; may stand several times")
	for _, own := range ownFlags {
		flags.String(own.name, "", own.usage)
	}
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
}

// given are the settings on the command line, in the order in which they count.
func (f *configFlags) given(flags *pflag.FlagSet) ([]config.Flag, error) {
	var given []config.Flag
	for _, own := range ownFlags {
		if fl := flags.Lookup(own.name); fl.Changed {
			given = append(given, config.Flag{Name: "--" + own.name, Path: own.path, Value: fl.Value.String()})
		}
	}
	for _, s := range f.set {
		path, value, ok := strings.Cut(s, "=")
		if !ok || path == "" {
			return nil, &exit.Error{
				Err: fmt.Errorf("--set %q: want KEY=VALUE", s), Code: exit.Usage, Do: "`margay config print` has all keys",
			}
		}
		given = append(given, config.Flag{Name: "--set", Path: path, Value: value})
	}
	return given, nil
}

// configuration reads what a command line, the environment and a file say.
func (a *app) configuration(cmd *cobra.Command, f *configFlags) (func() (*config.Result, error), error) {
	given, err := f.given(cmd.Flags())
	if err != nil {
		return nil, err
	}
	in := config.Input{File: f.file, Environ: a.environ(), Flags: given}
	cmd.Root().PersistentFlags().VisitAll(func(fl *pflag.Flag) {
		in.Others = append(in.Others, fl.Annotations[envAnnotation]...)
	})
	return func() (*config.Result, error) { return config.Load(in) }, nil
}

// environ is the environment that configuration is read from.
func (a *app) environ() []string {
	if a.Environ != nil {
		return a.Environ()
	}
	return nil
}

// loadOnce reads the configuration for a command that ends, and makes faults its failure.
func (a *app) loadOnce(cmd *cobra.Command, f *configFlags) (*config.Result, error) {
	load, err := a.configuration(cmd, f)
	if err != nil {
		return nil, err
	}
	r, err := load()
	if err != nil {
		return nil, configFailure(err)
	}
	if len(r.Unknown) > 0 {
		a.Warn("not settings, and ignored: %s", strings.Join(r.Unknown, ", "))
	}
	return r, nil
}

func configFailure(err error) error {
	f := &exit.Error{Err: err, Code: exit.Usage, Do: "put it right; `margay config print` shows what is in effect, and the guide has all keys"}
	if faults, ok := errors.AsType[config.FaultsError](err); ok {
		f.Details = faults
	}
	return f
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at the configuration of a node",
		Long: `The configuration of ` + "`margay serve`" + ` comes from a YAML file (--config or MARGAY_CONFIG), the environment
(MARGAY_ and the key in capitals: MARGAY_LIMITS_CONNECTIONS), and flags. What comes later stands above what came before.
A key that does not exist, twice the same key, and a value that cannot be used are faults; a node with faults does not start.`,
		Example: `  margay config check --config margay.yaml
  margay config print --config margay.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.configCheckCommand(), a.configPrintCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find every fault in a configuration; exits 2 when there is one",
		Example: `  margay config check --config margay.yaml
  margay config check --config margay.yaml --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.loadOnce(cmd, &f)
			if err != nil {
				return err
			}
			said := 0
			for _, s := range r.Settings {
				if s.From != config.Default {
					said++
				}
			}
			switch a.Format() {
			case output.JSON:
				return a.JSON(map[string]any{"ok": true, "file": r.File, "settings": said, "ignored": nonNil(r.Unknown)})
			case output.Raw:
				return a.Raw([]byte("ok"))
			default:
				return a.Line("no faults: %d settings are given, %d are at their defaults", said, len(r.Settings)-said)
			}
		},
	}
	f.define(cmd)
	return cmd
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func (a *app) configPrintCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting, its value and where that comes from",
		Long:  "Print every setting as `margay serve` would take it with the same flags, environment and file. Secrets are not shown.",
		Example: `  margay config print
  margay config print --config margay.yaml --set session.idle=1m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.loadOnce(cmd, &f)
			if err != nil {
				return err
			}
			return a.printSettings(r)
		},
	}
	f.define(cmd)
	return cmd
}

func (a *app) printSettings(r *config.Result) error {
	var rows [][]string
	for _, s := range r.Settings {
		var err error
		switch a.Format() {
		case output.JSON:
			err = a.JSON(s)
		case output.Raw:
			err = a.Raw([]byte(s.Path + "=" + s.Value))
		default:
			from := s.From
			if s.Line > 0 {
				from += ":" + strconv.Itoa(s.Line)
			}
			rows = append(rows, []string{s.Path, output.Show([]byte(s.Value)), from})
		}
		if err != nil {
			return err
		}
	}
	if rows == nil {
		return nil
	}
	return a.Table([]string{"KEY", "VALUE", "FROM"}, rows)
}
