// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/contexts"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Choose which cluster commands go to",
		Long: `A context says where a cluster is and how to prove who one is to it. It is a file,
$XDG_CONFIG_HOME/margay/contexts/NAME.yaml, readable by its owner only. ` + "`margay serve`" + ` writes one named local.`,
		Example: `  margay context list
  margay context use local`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.contextListCommand(), a.contextUseCommand(), a.contextShowCommand(), a.contextAddCommand(), a.contextDeleteCommand())
	return cmd
}

// contextView is a context without its secret.
type contextView struct {
	Name      string   `json:"name"`
	Current   bool     `json:"current"`
	Path      string   `json:"path,omitempty"`
	Addresses []string `json:"addresses"`
	HTTP      string   `json:"http,omitempty"`
	Tenant    string   `json:"tenant"`
	Namespace string   `json:"namespace"`
	CA        bool     `json:"ca"`
	APIKey    bool     `json:"api_key"`
}

func viewContext(c *control.Context, path string, current bool) contextView {
	return contextView{
		Name: c.Name, Current: current, Path: path, Addresses: c.Addresses, HTTP: c.HTTP,
		Tenant: c.Tenant, Namespace: c.Namespace, CA: c.CA != "", APIKey: c.APIKey != "",
	}
}

func (a *app) contextStore() (contexts.Store, error) {
	store, err := contexts.Locate(a.Getenv)
	if err != nil {
		return store, exit.Misuse("%w", err)
	}
	return store, nil
}

func (a *app) contextListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List contexts; * marks the current one",
		Example: `  margay context list
  margay context list --output json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := a.contextStore()
			if err != nil {
				return err
			}
			names, err := store.List()
			if err != nil {
				return err
			}
			current, err := store.Current()
			if err != nil {
				return err
			}
			var rows [][]string
			for _, name := range names {
				c, err := store.Load(name)
				if err != nil {
					a.Warn("context %s: %v", name, err) // one broken file must not hide the others
					continue
				}
				switch a.Format() {
				case output.JSON:
					err = a.JSON(viewContext(c, store.Path(name), name == current))
				case output.Raw:
					err = a.Raw([]byte(name))
				default:
					mark := " "
					if name == current {
						mark = "*"
					}
					rows = append(rows, []string{mark, name, strings.Join(c.Addresses, ","), c.HTTP})
				}
				if err != nil {
					return err
				}
			}
			if len(names) == 0 {
				a.Note("no contexts yet: `margay serve` writes one")
			}
			if len(rows) == 0 {
				return nil
			}
			return a.Table([]string{"", "NAME", "BROKERS", "CONTROL PLANE"}, rows)
		},
	}
}

func (a *app) contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Example: `  margay context use local
  margay context use staging`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		Annotations:       writes(),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := a.contextStore()
			if err != nil {
				return err
			}
			if err := store.Use(args[0]); err != nil {
				return a.contextError(args[0], err)
			}
			a.Note("commands now go to %s", args[0])
			return nil
		},
	}
}

func (a *app) contextShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context (the one in use when none is named), without its secret",
		Example: `  margay context show
  margay context show local --output json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.global.context = args[0]
			}
			c, err := a.chosenContext()
			if err != nil {
				return err
			}
			if c == nil {
				return &exit.Error{
					Err: errors.New("no context is current"), Code: exit.NotThere,
					Do: "start a node with `margay serve`, or choose one with `margay context use NAME`",
				}
			}
			path, current := a.global.context, false
			if store, err := contexts.Locate(a.Getenv); err == nil && !strings.HasSuffix(path, ".yaml") {
				name, err := store.Current()
				path, current = store.Path(c.Name), err == nil && name == c.Name
			}
			return a.printContext(viewContext(c, path, current))
		},
	}
}

func (a *app) printContext(v contextView) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(v)
	case output.Raw:
		return a.Raw([]byte(v.Name))
	case output.Text: // for a person, below
	}
	set := func(b bool, yes string) string {
		if b {
			return yes
		}
		return "none"
	}
	return a.Table(nil, [][]string{
		{"name", v.Name},
		{"file", v.Path},
		{"brokers", strings.Join(v.Addresses, ", ")},
		{"control plane", v.HTTP},
		{"tenant", v.Tenant},
		{"namespace", v.Namespace},
		{"CA", set(v.CA, "its own")},
		{"API key", set(v.APIKey, "set (not shown)")},
	})
}

func (a *app) contextAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME FILE",
		Short: "Add a context from a file, such as another node's DATA/context.yaml",
		Example: `  margay context add dev ./dev.yaml
  margay context add local /var/lib/margay/context.yaml`,
		Args:        cobra.ExactArgs(2),
		Annotations: writes(),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := a.contextStore()
			if err != nil {
				return err
			}
			c, err := control.LoadContext(args[1])
			if err != nil {
				return err
			}
			if !control.ValidName(args[0]) {
				return exit.Misuse("context %q: want a name of %s", args[0], control.NameRule)
			}
			c.Name = args[0]
			if err := store.Save(c); err != nil {
				return err
			}
			a.Note("added; use it with --context %s or `margay context use %s`", args[0], args[0])
			return nil
		},
	}
}

func (a *app) contextDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm"},
		Short:   "Forget a context; the cluster it names is not touched",
		Example: `  margay context delete old
  margay context rm old`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		Annotations:       writes(),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := a.contextStore()
			if err != nil {
				return err
			}
			return a.contextError(args[0], store.Delete(args[0]))
		},
	}
}

func (a *app) completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	store, err := contexts.Locate(a.Getenv)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := store.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
