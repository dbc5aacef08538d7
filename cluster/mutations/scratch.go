// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// findRoot looks for the root of the repository, from the working directory upwards.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.work here or above: run it inside the repository")
		}
		dir = up
	}
}

// scratch is a copy of the tree that may be broken.
type scratch struct{ dir string }

// newScratch copies what git knows of the tree, and what it would take, as it is now.
func newScratch(ctx context.Context, root string) (*scratch, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	names, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tree: %w", err)
	}
	dir, err := os.MkdirTemp("", "margay-mutations-")
	if err != nil {
		return nil, err
	}
	s := &scratch{dir: dir}
	for name := range bytes.SplitSeq(bytes.TrimRight(names, "\x00"), []byte{0}) {
		if err := s.copyFrom(root, string(name)); err != nil {
			return nil, errors.Join(fmt.Errorf("copy the tree: %w", err), s.remove())
		}
	}
	return s, nil
}

func (s *scratch) copyFrom(root, name string) error {
	from, to := filepath.Join(root, name), filepath.Join(s.dir, name)
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted, and not committed yet
	}
	if err != nil || info.IsDir() {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}

func (s *scratch) remove() error { return os.RemoveAll(s.dir) }

// errStale means that a mutation does not fit the file any more.
var errStale = errors.New("the list is behind the code: bring the mutation up to date")

// mutate returns what a file's text becomes.
func (e *edit) mutate(text string) (string, error) {
	switch n := strings.Count(text, e.old); {
	case n != 1:
		return "", fmt.Errorf("its text stands %d times in %s: %w", n, e.file, errStale)
	case e.old == e.new:
		return "", fmt.Errorf("it changes nothing: %w", errStale)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// apply breaks the copy, and returns how to mend it, also when it fails.
func (s *scratch) apply(m *mutation) (mend func() error, err error) {
	was := map[string][]byte{}
	mend = func() error {
		var errs []error
		for name, text := range was {
			errs = append(errs, os.WriteFile(name, text, 0o644))
		}
		return errors.Join(errs...)
	}
	for _, e := range m.edits() {
		name := filepath.Join(s.dir, filepath.FromSlash(e.file))
		text, err := os.ReadFile(name)
		if err != nil {
			return mend, err
		}
		if _, known := was[name]; !known {
			was[name] = text
		}
		is, err := e.mutate(string(text))
		if err != nil {
			return mend, err
		}
		if err := os.WriteFile(name, []byte(is), 0o644); err != nil {
			return mend, err
		}
	}
	return mend, nil
}
