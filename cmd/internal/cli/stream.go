// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) streamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Create, list, change and delete streams",
		Long: `A stream is named NAME, NAMESPACE/NAME or TENANT/NAMESPACE/NAME; what is left out comes from the
context. Names are ` + control.NameRule + `.`,
		Example: `  margay stream create orders --shards 4
  margay stream list`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		a.streamCreateCommand(), a.streamListCommand(), a.streamInfoCommand(), a.streamUpdateCommand(), a.streamDeleteCommand(),
		a.streamCursorsCommand(), a.streamCursorDeleteCommand(),
	)
	return cmd
}

func (a *app) streamCreateCommand() *cobra.Command {
	var set streamFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Aliases: []string{"add"},
		Short:   "Create a stream, or find the very same one there already",
		Example: `  margay stream create orders --shards 4 --max-age 7d
  margay stream create metrics --fsync interval --max-bytes 10GiB`,
		Args:        cobra.ExactArgs(1),
		Annotations: writes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := set.check(cmd.Flags(), "created"); err != nil {
				return err
			}
			return a.withStream(args[0], func(c *control.Client, tenant, namespace, name string) error {
				s, err := c.CreateStream(cmd.Context(), tenant, namespace, set.spec(cmd.Flags(), name))
				if err != nil {
					return err
				}
				if a.Format() == output.Text {
					return a.Line("stream %s is there: %s", a.Bold(control.FullName(s.Tenant, s.Namespace, s.Name)), summary(s))
				}
				return a.printStream(s)
			})
		},
	}
	set.define(cmd, true)
	return cmd
}

func (a *app) streamListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list [[TENANT/]NAMESPACE]",
		Aliases: []string{"ls"},
		Short:   "List the streams of a namespace (the context's when none is named)",
		Example: `  margay stream list
  margay stream list shop --output json`,
		Args: cobra.MaximumNArgs(1),
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
			return reached(a.listStreams(cmd, c, tenant, namespace), t.HTTP)
		},
	}
}

func (a *app) listStreams(cmd *cobra.Command, c *control.Client, tenant, namespace string) error {
	var rows [][]string
	for cursor := ""; ; {
		page, err := c.Streams(cmd.Context(), tenant, namespace, cursor, 0)
		if err != nil {
			return err
		}
		for _, s := range page.Items {
			if a.Format() != output.Text {
				if err := a.printStream(s); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{
				s.Name, strconv.Itoa(s.Shards), s.Ack, s.Fsync, s.Storage, limit(s.MaxAge), limitBytes(s.MaxBytes),
				s.CreatedAt.Local().Format(time.DateTime),
			})
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(rows) == 0 {
		if a.Format() == output.Text {
			a.Note("no streams in %s/%s; create one with `margay stream create NAME`", tenant, namespace)
		}
		return nil
	}
	return a.Table([]string{"NAME", "SHARDS", "ACK", "FSYNC", "STORAGE", "MAX AGE", "MAX BYTES", "CREATED"}, rows)
}

func (a *app) streamUpdateCommand() *cobra.Command {
	var set streamFlags
	var version uint64
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change a stream's settings: only those that are named",
		Example: `  margay stream update orders --max-age 30d
  margay stream update orders --fsync always --if-version 7`,
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !set.any(cmd.Flags()) {
				return exit.Misuse("nothing to change: name at least one setting")
			}
			if err := set.check(cmd.Flags(), "changed"); err != nil {
				return err
			}
			return a.withStream(args[0], func(c *control.Client, tenant, namespace, name string) error {
				s, err := c.UpdateStream(cmd.Context(), tenant, namespace, name, version, set.patch(cmd.Flags()))
				if err != nil {
					return aboutStream(err, name)
				}
				return a.printStream(s)
			})
		},
	}
	set.define(cmd, false)
	cmd.Flags().Uint64Var(&version, "if-version", 0, "change it only if it is at this version")
	return cmd
}

func (a *app) streamDeleteCommand() *cobra.Command {
	var version uint64
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm"},
		Short:   "Delete a stream and all of its records",
		Example: `  margay stream delete orders
  margay stream rm shop/orders --if-version 7`,
		Args:              cobra.ExactArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStream(args[0], func(c *control.Client, tenant, namespace, name string) error {
				if err := c.DeleteStream(cmd.Context(), tenant, namespace, name, version); err != nil {
					return aboutStream(err, name)
				}
				full := control.FullName(tenant, namespace, name)
				switch a.Format() {
				case output.JSON:
					return a.JSON(map[string]string{"deleted": full})
				case output.Raw:
					return a.Raw([]byte(name))
				case output.Text: // for a person, below
				}
				return a.Line("stream %s is deleted, with all of its records", a.Bold(full))
			})
		},
	}
	cmd.Flags().Uint64Var(&version, "if-version", 0, "delete it only if it is at this version")
	return cmd
}

// summary is a stream in one line.
func summary(s control.Stream) string {
	shards := count(s.Shards, "shard")
	kept := "kept for good"
	switch {
	case s.Storage == control.StorageMemory && s.MaxAge == 0 && s.MaxBytes == 0:
		kept = "the newest 48 MiB a shard, until the node stops"
	case s.MaxAge > 0 && s.MaxBytes > 0:
		kept = "kept for " + limit(s.MaxAge) + " or up to " + limitBytes(s.MaxBytes) + " a shard"
	case s.MaxAge > 0:
		kept = "kept for " + limit(s.MaxAge)
	case s.MaxBytes > 0:
		kept = "kept up to " + limitBytes(s.MaxBytes) + " a shard"
	}
	if s.OnFull == control.OnFullDropOldest {
		kept += ", the oldest dropped when the disk is full"
	}
	return strings.Join([]string{shards, "ack " + s.Ack, "fsync " + s.Fsync, "storage " + s.Storage, kept}, ", ")
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func limit(d control.Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}

func limitBytes(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return control.FormatBytes(n)
}

// completeStreams offers the streams of the context's namespace; a cluster that does not answer at once
// offers nothing, rather than hang the shell.
func (a *app) completeStreams(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
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
	page, err := c.Streams(cmd.Context(), t.Tenant, t.Namespace, "", 0)
	if err != nil {
		return nil, none
	}
	names := make([]string, len(page.Items))
	for i, s := range page.Items {
		names[i] = s.Name
	}
	return names, none
}
