// SPDX-License-Identifier: Apache-2.0

// Command transcript runs the console blocks of pages and compares what they print with what the page says they do. It
// runs each page in an empty directory under a home of its own, touches nothing else, and refuses to run beside
// another node, whose answers it could not tell from its own. CONTRIBUTING.md has the convention.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "the folder of the margay binary, put first on PATH")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if ran, code := ownNet(ctx); ran {
		stop()
		os.Exit(code)
	}
	err := run(ctx, *bin, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transcript:", err)
		os.Exit(1)
	}
}

// run runs every page named, and every page below each folder named, and joins what failed.
func run(ctx context.Context, bin string, args []string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	names, err := pages(args)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		steps, err := parse(string(text))
		if err != nil {
			failed = append(failed, fmt.Errorf("%s:%w", name, err))
			continue
		}
		if len(steps) == 0 {
			continue
		}
		start := time.Now()
		if err := runPage(ctx, bin, steps); err != nil {
			failed = append(failed, fmt.Errorf("%s:%w", name, err))
			continue
		}
		fmt.Printf("transcript: %s: %d commands in %.1f s\n", name, len(steps), time.Since(start).Seconds())
	}
	return errors.Join(failed...)
}

func pages(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		err := filepath.WalkDir(arg, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (name == arg || strings.HasSuffix(name, ".md")) {
				names = append(names, name)
			}
			return err
		})
		if err != nil && (arg == "README.md" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
