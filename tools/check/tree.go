// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the text of a repository, by slash-separated path. Files that hold a NUL byte keep their name only: links may
// point at them.
type tree struct {
	files map[string]string
	names []string // sorted
	dirs  map[string]bool
}

// finding is one place that breaks a rule.
type finding struct {
	path    string
	line    int // 0: the whole file
	message string
	warning bool
}

func (f finding) String() string {
	at := f.path
	if f.line > 0 {
		at = fmt.Sprintf("%s:%d", f.path, f.line)
	}
	if f.warning {
		return at + ": warning: " + f.message
	}
	return at + ": " + f.message
}

// check runs every check and returns what they found, file by file.
func (t *tree) check() []finding {
	var all []finding
	for _, check := range []func(*tree) []finding{
		checkLinks, checkSnippets, checkPromises, checkArrows, checkWords, checkSource,
	} {
		all = append(all, check(t)...)
	}
	slices.SortStableFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
	})
	return all
}

// newTree makes a tree of given files.
func newTree(files map[string]string) *tree {
	t := &tree{files: files, names: slices.Sorted(maps.Keys(files)), dirs: map[string]bool{".": true}}
	for _, name := range t.names {
		for dir := path.Dir(name); !t.dirs[dir]; dir = path.Dir(dir) {
			t.dirs[dir] = true
		}
	}
	return t
}

// readTree reads what git tracks below root, and what it would add.
func readTree(ctx context.Context, root string) (*tree, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	files := make(map[string]string)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, not yet committed
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			text = nil
		}
		files[name] = string(text)
	}
	return newTree(files), nil
}

// named returns the paths that end in suffix.
func (t *tree) named(suffix string) []string {
	return slices.DeleteFunc(slices.Clone(t.names), func(n string) bool { return !strings.HasSuffix(n, suffix) })
}
