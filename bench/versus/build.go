// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"margay.dev/bench/internal/child"
)

// root finds the repository that the working directory lies in.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the repository: run it as `go run ./bench/versus`")
		}
		dir = filepath.Dir(dir)
	}
}

// peers are the programs outside the workspace, each a module of its own.
var peers = []string{"nats", "etcd", "redis"}

// build makes all programs, and returns why peers could not be made. A peer that is not there is no reason to stop.
func build(ctx context.Context, root, binaries string, say func(string, ...any)) (missing map[string]string, err error) {
	if err := os.MkdirAll(binaries, 0o755); err != nil {
		return nil, err
	}
	for name, pkg := range map[string]string{
		"margay": "./cmd/margay", "limits": "./bench/limits", "bare": "./bench/bare", "driver": "./bench/driver",
	} {
		say("building %s", name)
		cmd := child.Command{
			Argv: []string{"go", "build", "-C", root, "-trimpath", "-o", filepath.Join(binaries, name), pkg}, Env: []string{"CGO_ENABLED=0"},
		}
		if _, err := child.Run(ctx, cmd); err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
	}
	missing = map[string]string{}
	for _, name := range peers {
		say("building %s", name)
		dir := filepath.Join(root, "bench", "peers", name)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			missing[name] = "bench/peers/" + name + " is not there"
			continue
		}
		cmd := child.Command{
			Argv: []string{"go", "build", "-C", dir, "-trimpath", "-o", filepath.Join(binaries, name), "."},
			Env:  []string{"GOWORK=off", "CGO_ENABLED=0"},
		}
		if _, err := child.Run(ctx, cmd); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			missing[name] = err.Error()
		}
	}
	return missing, nil
}
