// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/guide/configuration.md")

const page = "../../../docs/guide/configuration.md"

// What the page says around the tables, which stand in place of the mark.
const (
	prose = "testdata/page.md"
	mark  = "{{tables}}\n"
)

// The guide's page is made of the very tags that are read: it cannot say what is not so. Run with -update to write it.
func TestPageIsCurrent(t *testing.T) {
	around, err := os.ReadFile(prose)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(around), mark, tables(), 1)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the structs say: run `go test ./cmd/internal/config -update`", page)
	}
}

// The page's example is one that a node would take.
func TestExampleOnThePage(t *testing.T) {
	around, err := os.ReadFile(prose)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(around), "```yaml\n")
	example, _, ok := strings.Cut(after, "```\n")
	if !ok {
		t.Fatal("the page has no example")
	}
	r := load(t, Input{File: write(t, example)})
	if r.Config.Limits.Connections != 20000 {
		t.Errorf("%+v", r.Config)
	}
}

// groups say in a line what the values below a key are for.
var groups = map[string]string{
	"":         "The node",
	"log":      "What the node says of itself, on standard error",
	"shutdown": "How it stops",
	"limits":   "What clients may take of it",
	"storage":  "What it takes of the machine for its data",
	"session":  "The transport of clients: QUIC",
}

func tables() string {
	var b strings.Builder
	parts := tree(reflect.ValueOf(&Config{}).Elem(), "")
	table := func(key string, parts []*part) {
		title := "`" + key + "`: " + groups[key]
		if key == "" {
			title = groups[key]
		}
		fmt.Fprintf(&b, "### %s\n\n| key | default | may be | what it is |\n| --- | --- | --- | --- |\n", title)
		for _, p := range parts {
			if p.field != nil {
				b.WriteString(p.field.row())
			}
		}
		b.WriteString("\n")
	}
	table("", parts)
	for _, p := range parts {
		if p.field == nil {
			table(p.key, p.group)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (f *field) row() string {
	shown := f.text()
	if unset := f.tag.Get("unset"); unset != "" {
		shown = unset
	}
	what := f.tag.Get("doc") + "."
	if name := f.flag(); name != "" {
		what += " Also `--" + name + "`."
	}
	if f.live() {
		what += " Changed by a reload."
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", f.path, shown, f.bounds(), what)
}

func (f *field) bounds() string {
	if words := f.words(); words != nil {
		return "`" + strings.Join(words, "`, `") + "`"
	}
	low, high := f.tag.Get("min"), f.tag.Get("max")
	switch {
	case low != "" && high != "":
		return low + " to " + high
	case low != "":
		return low + " or more"
	}
	return kind(f.value)
}
