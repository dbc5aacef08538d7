// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/output"
)

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func examples(cmd *cobra.Command) []string {
	var all []string
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func newRoot() *cobra.Command {
	a := &app{
		Process: Process{Getenv: func(string) string { return "" }},
		Printer: output.NewPrinter(output.Text, output.Streams{}), global: globals{output: output.Text},
	}
	return a.root()
}

// Help is how a command is learned: each says in a line what it does and shows two examples, and what
// the examples show is understood.
func TestHelp(t *testing.T) {
	walk(newRoot(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Short == "" || len(examples(cmd)) < 2 {
			t.Errorf("%s: %q and %d examples, want a line and two", path, cmd.Short, len(examples(cmd)))
		}
		for _, line := range examples(cmd) {
			checkExample(t, path, line)
		}
	})
}

func checkExample(t *testing.T, path, line string) {
	t.Helper()
	command, _, _ := strings.Cut(line, " <")
	args := strings.Fields(strings.ReplaceAll(command, "'", ""))[1:]
	root := newRoot()
	cmd, rest, err := root.Find(args)
	if err == nil && path != "margay" && cmd.CommandPath() != path && cmd.Parent().CommandPath() != path {
		t.Errorf("%s: the example %q shows another command", path, line)
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: the example %q is not understood: %v", path, line, err)
	}
}

func TestEveryCommandHasTheCommonFlags(t *testing.T) {
	walk(newRoot(), func(cmd *cobra.Command) {
		for _, name := range []string{"output", "context", "address", "token", "ca", "timeout"} {
			if cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", cmd.CommandPath(), name)
			}
		}
	})
}

func TestAliases(t *testing.T) {
	for alias, path := range map[string]string{
		"stream ls": "margay stream list", "stream rm": "margay stream delete", "stream add": "margay stream create",
		"queue ls": "margay queue list", "queue rm": "margay queue delete", "queue add": "margay queue create",
		"group ls": "margay group list", "group rm": "margay group delete", "group add": "margay group create",
		"deadletter ls": "margay deadletter list",
		"cache ls":      "margay cache list", "cache rm": "margay cache delete", "cache add": "margay cache create",
		"context ls": "margay context list", "context rm": "margay context delete",
	} {
		cmd, _, err := newRoot().Find(strings.Fields(alias))
		if err != nil || cmd.CommandPath() != path {
			t.Errorf("%s is %s, %v; want %s", alias, cmd.CommandPath(), err, path)
		}
	}
}
