// SPDX-License-Identifier: Apache-2.0

// Package build makes the programs of a measurement from the sources around the working directory; it writes to the directory
// that it is given, and refuses to use what was built before without asking the compiler.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"margay.dev/bench/internal/child"
)

// Root finds the repository that the working directory lies in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the repository: run it from there, with `go run`")
		}
		dir = filepath.Dir(dir)
	}
}

// ours are programs of the workspace by their packages.
var ours = map[string]string{
	"margay": "./cmd/margay", "limits": "./bench/limits", "bare": "./bench/bare", "driver": "./bench/driver", "keys": "./bench/keys",
	"queues": "./bench/queues",
}

// Ours builds programs of the workspace into a directory.
func Ours(ctx context.Context, root, to string, names ...string) error {
	version := "unknown"
	if out, err := child.Run(ctx, child.Command{Argv: []string{"git", "-C", root, "describe", "--tags", "--always", "--dirty"}}); err == nil {
		version = strings.TrimSpace(string(out))
	}
	for _, name := range names {
		c := child.Command{
			Argv: []string{
				"go", "build", "-C", root, "-trimpath", "-ldflags", "-X main.version=" + version, "-o", filepath.Join(to, name), ours[name],
			},
			Env: []string{"CGO_ENABLED=0"},
		}
		if _, err := child.Run(ctx, c); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// Peer builds one of the programs outside the workspace.
func Peer(ctx context.Context, root, to, name string) error {
	dir := filepath.Join(root, "bench", "peers", name)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return fmt.Errorf("bench/peers/%s is not there", name)
	}
	_, err := child.Run(ctx, child.Command{
		Argv: []string{"go", "build", "-C", dir, "-trimpath", "-o", filepath.Join(to, name), "."},
		Env:  []string{"GOWORK=off", "CGO_ENABLED=0"},
	})
	return err
}
