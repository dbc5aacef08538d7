// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the page of the command line anew")

// The page of all commands says what the commands themselves say.
func TestReferencePage(t *testing.T) {
	name := filepath.Join("..", "..", "..", "docs", "reference", "cli.md")
	want := referencePage(newRoot())
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the commands say: run go test ./internal/cli -run TestReferencePage -update in cmd", name)
	}
}

func referencePage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The command line\n\n<!-- Generated from the commands: go test ./internal/cli -run TestReferencePage -update (in cmd). -->\n\n")
	b.WriteString("What `margay COMMAND --help` prints, on one page.\n")
	fence(&b, root.Long)
	b.WriteString("\nFlags of every command:\n")
	fence(&b, strings.TrimRight(root.PersistentFlags().FlagUsages(), "\n"))
	walk(root, func(cmd *cobra.Command) {
		if cmd == root || cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
		text := cmd.UseLine()
		if len(cmd.Aliases) > 0 {
			text += "\naliases: " + strings.Join(cmd.Aliases, ", ")
		}
		if cmd.Long != "" {
			text += "\n\n" + cmd.Long
		}
		text += "\n\n" + cmd.Example
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch f.Name {
			case "help":
				f.Hidden = true
			case "workers":
				f.DefValue = "0" // which is not shown: as many as the machine has processors
			}
		})
		if flags := strings.TrimRight(cmd.LocalNonPersistentFlags().FlagUsages(), "\n"); flags != "" {
			text += "\n\n" + flags
		}
		fence(&b, text)
	})
	return b.String()
}

func fence(b *strings.Builder, text string) {
	b.WriteString("\n```text\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString("```\n")
}
