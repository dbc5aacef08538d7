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
	return run(t, example, func(ctx context.Context, a *admin.Client) error {
		_, err := a.EnsureCache(ctx, admin.CacheSpec{Name: cache, Shards: &shards})
		return err
	})
}

// RunStream is Run with a stream.
func RunStream(t *testing.T, stream string, shards int, example func(context.Context, *log.Logger) error) string {
	t.Helper()
	return run(t, example, func(ctx context.Context, a *admin.Client) error {
		_, err := a.EnsureStream(ctx, admin.StreamSpec{Name: stream, Shards: &shards})
		return err
	})
}

func run(t *testing.T, example func(context.Context, *log.Logger) error, prepare func(context.Context, *admin.Client) error) string {
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
	if err := prepare(ctx, a); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := example(ctx, log.New(&out, "", 0)); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	return out.String()
}
