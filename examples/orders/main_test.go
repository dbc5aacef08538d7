// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

const patience = 30 * time.Second // that the whole example may take; no test passes by it

// The example does what it says, against a real node.
func TestRun(t *testing.T) {
	n := margaytest.Start(t)
	here := n.Context()
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	if err := control.SaveContext(filepath.Join(config, "margay", "contexts", "local.yaml"), &here); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	api, err := control.NewClient(here.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	shards := 4
	if _, err := api.CreateStream(ctx, here.Tenant, here.Namespace, control.StreamSpec{Name: "orders", Shards: &shards}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(ctx, log.New(&out, "", 0)); err != nil {
		t.Fatal(err)
	}
	const want = `placed: shard 2, offset 0, flushed true
paid: shard 2, offset 1, flushed true
shipped: shard 2, offset 2, flushed true
2/0 order-42 placed
2/1 order-42 paid
2/2 order-42 shipped
`
	if out.String() != want {
		t.Errorf("the example printed\n%s\nwant\n%s", out.String(), want)
	}
}

// The README shows this program, not one that used to compile.
func TestReadmeShowsThisProgram(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(source), "\npackage main\n")
	if !ok {
		t.Fatal("main.go has no package clause")
	}
	_, shown, ok := strings.Cut(string(readme), "```go\npackage main\n")
	if !ok {
		t.Fatal("the README shows no program")
	}
	if shown, _, _ = strings.Cut(shown, "```"); shown != program {
		t.Errorf("the README shows\n%s\nand examples/orders/main.go holds\n%s", shown, program)
	}
}
