// SPDX-License-Identifier: Apache-2.0

// Package exampletest gives an example the node that it expects; it touches the test's own directories and the environment of
// the test's process, and refuses to outlive the test.
package exampletest

import (
	"context"
	"log"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/client/admin"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

const patience = time.Minute // that a whole example may take; no test passes by it

// Run runs an example beside a node that is the context `local` and has a cache, and returns what it printed.
func Run(t *testing.T, cache string, shards int, example func(context.Context, *log.Logger) error) string {
	t.Helper()
	n := margaytest.Start(t)
	here := n.Context()
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	if err := control.SaveContext(filepath.Join(config, "margay", "contexts", "local.yaml"), &here); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := admin.FromContext(here)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.EnsureCache(ctx, admin.CacheSpec{Name: cache, Shards: &shards}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := example(ctx, log.New(&out, "", 0)); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	return out.String()
}
