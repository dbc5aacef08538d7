// SPDX-License-Identifier: Apache-2.0

package code

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/errors.md anew")

// TestReferencePage holds docs/reference/errors.md to the table. `go test ./code -update` rewrites it.
func TestReferencePage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference", "errors.md")
	want := reference()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference/errors.md is stale: run go test ./code -update in wire")
	}
}

func reference() string {
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Generated from wire/code/table.go: go test ./code -update (in wire). -->

Every error has a stable number and name, a class, a message and, where it helps, a time to wait, an address with
a generation, and details. Programs act on class and code; the message is for people and may change.

| class | the request was | what to do |
| --- | --- | --- |
| refused | certainly not applied | may succeed later (after the given time) or elsewhere (at the given address) |
| fatal | certainly not applied | fails again unchanged |
| unknown | perhaps applied | ask, or send it again under the same producer and sequence |

The class below is the default of the code; an answer may carry another one when it knows more (a timeout before
anything was sent is refused).

| number | name | class | meaning | remedy |
| --- | --- | --- | --- | --- |
`)
	for _, c := range All() {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s |\n", c, c.Error(), c.Class(), table[c].meaning, c.Remedy())
	}
	b.WriteString(`
Details: earliest and latest (offsets that can be read, the latest exclusive), last sequence (of the producer),
resume at (an offset), limit (the bound that was exceeded), shard, index (of a record in its batch, or of an item in its list).
`)
	return b.String()
}
