// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs every fuzz target of the repository for a while, one after another, since `go test -fuzz` takes one
// package and one target a call. It finds targets by their declarations, and keeps nothing but what -corpus asks for: a
// failing input is written by `go test` below the package's testdata/fuzz, to be committed with the fix.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// target is one fuzz function.
type target struct {
	dir, name string // dir is relative to the repository, with slashes
}

func main() {
	// A count, not a time, by default: a busy machine then fuzzes as much as an idle one.
	long := flag.String("time", "20000x", "how long each target runs: a count such as 5000x, or a duration")
	match := flag.String("match", "", "run only the targets whose `folder.Name` matches this regular expression")
	corpus := flag.String("corpus", "", "keep the inputs that reach new code in this directory, and start from those that are there; empty: in the build cache")
	list := flag.Bool("list", false, "print the targets and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", *long, *match, *corpus, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, long, match, corpus string, list bool) error {
	if corpus != "" {
		var err error
		if corpus, err = filepath.Abs(corpus); err != nil { // tests run in their own folders
			return fmt.Errorf("corpus: %w", err)
		}
	}
	chosen, err := regexp.Compile(match)
	if err != nil {
		return fmt.Errorf("match: %w", err)
	}
	targets, err := find(os.DirFS(root))
	if err != nil {
		return err
	}
	var failed []error
	ran := 0
	for _, t := range targets {
		if !chosen.MatchString(t.dir + "." + t.name) {
			continue
		}
		ran++
		if list {
			fmt.Println(t.dir, t.name)
			continue
		}
		start := time.Now()
		if err := t.fuzz(ctx, root, long, corpus); err != nil {
			failed = append(failed, fmt.Errorf("%s in %s: %w", t.name, t.dir, err))
			continue
		}
		fmt.Printf("fuzz: %s %s: %s in %.1f s\n", t.dir, t.name, long, time.Since(start).Seconds())
	}
	if ran == 0 && match != "" {
		return fmt.Errorf("no target matches %q", match)
	}
	return errors.Join(failed...)
}

// fuzz runs one target and prints what it said only if it failed.
func (t target) fuzz(ctx context.Context, root, long, corpus string) error {
	args := []string{"test", "-run", "^$", "-fuzz", "^" + t.name + "$", "-fuzztime", long, "./" + t.dir}
	if corpus != "" {
		args = append(args, "-test.fuzzcachedir="+filepath.Join(corpus, filepath.FromSlash(t.dir)))
	}
	test := exec.CommandContext(ctx, "go", args...)
	test.Dir = root
	out, err := test.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// find returns the fuzz targets in the order of their files.
func find(tree fs.FS) ([]target, error) {
	var found []target
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "bin" || name == "tools") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			found = append(found, target{dir: filepath.ToSlash(filepath.Dir(name)), name: string(m[1])})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find targets: %w", err)
	}
	return found, nil
}
