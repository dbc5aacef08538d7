// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// collection is the logs of one preset, as commands and words.
type collection struct {
	preset string // the noun, and the command that holds the others
	name   string // of one, in examples
	// What the examples create and change.
	created [2]string
	changed string
	// What bounds the logs of a list, for a person: names and values.
	boundNames []string
	bounds     func(*control.LogDocument) []string
}

func collections() []collection { return []collection{streams(), caches(), queues()} }

// commands are those that every collection has.
func (a *app) collectionCommands(k collection) []*cobra.Command {
	return []*cobra.Command{
		a.logCreateCommand(k), a.logListCommand(k), a.logInfoCommand(k), a.logUpdateCommand(k), a.logDeleteCommand(k),
	}
}

func (k collection) examples(lines ...string) string {
	return "  margay " + k.preset + " " + strings.Join(lines, "\n  margay "+k.preset+" ")
}

func (a *app) logCreateCommand(k collection) *cobra.Command {
	var set logFlags
	cmd := &cobra.Command{
		Use:         "create NAME",
		Aliases:     []string{"add"},
		Short:       "Create a " + k.preset + ", or find the very same one there already",
		Example:     k.examples("create "+k.created[0], "create "+k.created[1]),
		Args:        cobra.ExactArgs(1),
		Annotations: writes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := set.check(cmd.Flags(), "created"); err != nil {
				return err
			}
			return a.withLog(args[0], func(c *control.Client, tenant, namespace, name string) error {
				s, err := c.Logs(k.preset).Create(cmd.Context(), tenant, namespace, set.spec(cmd.Flags(), name))
				if err != nil {
					return err
				}
				if a.Format() == output.Text {
					return a.Line("%s %s is there: %s", k.preset, a.Bold(control.FullName(s.Tenant, s.Namespace, s.Name)), summary(&s))
				}
				return a.printLog(k, &s)
			})
		},
	}
	set.define(cmd, k, true)
	return cmd
}

func (a *app) logListCommand(k collection) *cobra.Command {
	return &cobra.Command{
		Use:     "list [[TENANT/]NAMESPACE]",
		Aliases: []string{"ls"},
		Short:   "List the " + k.preset + "s of a namespace (the context's when none is named)",
		Example: k.examples("list", "list shop --output json"),
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			tenant, namespace := t.Tenant, t.Namespace
			if len(args) == 1 {
				namespace = args[0]
				if before, after, ok := strings.Cut(args[0], "/"); ok {
					tenant, namespace = before, after
				}
				if !control.ValidName(tenant) || !control.ValidName(namespace) {
					return exit.Misuse("namespace %q: want NAMESPACE or TENANT/NAMESPACE, each %s", args[0], control.NameRule)
				}
			}
			c, err := a.rest(t)
			if err != nil {
				return err
			}
			defer c.Close()
			return reached(a.listLogs(cmd, k, c, tenant, namespace), t.HTTP)
		},
	}
}

func (a *app) listLogs(cmd *cobra.Command, k collection, c *control.Client, tenant, namespace string) error {
	var rows [][]string
	for cursor := ""; ; {
		page, err := c.Logs(k.preset).List(cmd.Context(), tenant, namespace, cursor, 0)
		if err != nil {
			return err
		}
		for i := range page.Items {
			d := &page.Items[i]
			if a.Format() != output.Text {
				if err := a.printLog(k, d); err != nil {
					return err
				}
				continue
			}
			row := append([]string{d.Name, strconv.Itoa(d.Shards), d.Ack, d.Fsync, d.Storage, d.Keep}, k.bounds(d)...)
			rows = append(rows, append(row, d.CreatedAt.Local().Format(time.DateTime)))
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(rows) == 0 {
		if a.Format() == output.Text {
			a.Note("no %ss in %s/%s; create one with `margay %s create NAME`", k.preset, tenant, namespace, k.preset)
		}
		return nil
	}
	header := append([]string{"NAME", "SHARDS", "ACK", "FSYNC", "STORAGE", "KEEP"}, k.boundNames...)
	return a.Table(append(header, "CREATED"), rows)
}

func (a *app) logUpdateCommand(k collection) *cobra.Command {
	var set logFlags
	var version uint64
	cmd := &cobra.Command{
		Use:               "update NAME",
		Short:             "Change a " + k.preset + "'s settings: only those that are named",
		Example:           k.examples("update "+k.name+" "+k.changed, "update "+k.name+" --fsync always --if-version 7"),
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(k),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !set.any(cmd.Flags()) {
				return exit.Misuse("nothing to change: name at least one setting")
			}
			if err := set.check(cmd.Flags(), "changed"); err != nil {
				return err
			}
			return a.withLog(args[0], func(c *control.Client, tenant, namespace, name string) error {
				s, err := c.Logs(k.preset).Update(cmd.Context(), tenant, namespace, name, version, set.patch(cmd.Flags()))
				if err != nil {
					return aboutLog(cmd.Context(), k, c, err, tenant, namespace, name)
				}
				return a.printLog(k, &s)
			})
		},
	}
	set.define(cmd, k, false)
	cmd.Flags().Uint64Var(&version, "if-version", 0, "change it only if it is at this version")
	return cmd
}

func (a *app) logDeleteCommand(k collection) *cobra.Command {
	var version uint64
	cmd := &cobra.Command{
		Use:               "delete NAME",
		Aliases:           []string{"rm"},
		Short:             "Delete a " + k.preset + " and all of its records",
		Example:           k.examples("delete "+k.name, "rm shop/"+k.name+" --if-version 7"),
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(k),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLog(args[0], func(c *control.Client, tenant, namespace, name string) error {
				if err := c.Logs(k.preset).Delete(cmd.Context(), tenant, namespace, name, version); err != nil {
					return aboutLog(cmd.Context(), k, c, err, tenant, namespace, name)
				}
				full := control.FullName(tenant, namespace, name)
				switch a.Format() {
				case output.JSON:
					return a.JSON(map[string]string{"deleted": full})
				case output.Raw:
					return a.Raw([]byte(name))
				case output.Text: // for a person, below
				}
				return a.Line("%s %s is deleted, with all of its records", k.preset, a.Bold(full))
			})
		},
	}
	cmd.Flags().Uint64Var(&version, "if-version", 0, "delete it only if it is at this version")
	return cmd
}

// aboutLog says which log an error is about. A name that is not there as this preset may be there as another.
func aboutLog(ctx context.Context, k collection, c *control.Client, err error, tenant, namespace, name string) error {
	f := aboutPreset(k.preset, err, name)
	if !errors.Is(err, code.NotFound) {
		return f
	}
	for _, other := range collections() {
		if other.preset == k.preset {
			continue
		}
		if _, err := c.Logs(other.preset).Get(ctx, tenant, namespace, name); err == nil {
			f.Do = fmt.Sprintf("%s is a %s: use the commands of `margay %s`", name, other.preset, other.preset)
		}
	}
	return f
}

// completeLogs offers the names of the context's namespace; a cluster that does not answer at once offers nothing, rather
// than hang the shell.
func (a *app) completeLogs(k collection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 || a.readEnvironment(cmd) != nil {
			return nil, none
		}
		t, err := a.target()
		if err != nil {
			return nil, none
		}
		a.global.timeout = min(a.global.timeout, time.Second)
		c, err := a.rest(t)
		if err != nil {
			return nil, none
		}
		defer c.Close()
		page, err := c.Logs(k.preset).List(cmd.Context(), t.Tenant, t.Namespace, "", 0)
		if err != nil {
			return nil, none
		}
		names := make([]string, len(page.Items))
		for i := range page.Items {
			names[i] = page.Items[i].Name
		}
		return names, none
	}
}
