// SPDX-License-Identifier: Apache-2.0

// Package contexts keeps a user's contexts (where a cluster is and how to prove who one is to it) as
// files of the user's configuration directory; it touches that directory only, and refuses names that
// could lead out of it.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"margay.dev/wire/control"
)

// Store is the directory that holds them: contexts/NAME.yaml and, in the file "current", the name of
// the one that is used when none is named.
type Store struct{ dir string }

const currentFile = "current"

// Locate finds the user's store by the XDG rules. It need not exist yet.
func Locate(getenv func(string) string) (Store, error) {
	dir, err := xdg(getenv, "XDG_CONFIG_HOME", ".config")
	return Store{dir}, err
}

// DataDir is where `margay serve` keeps its data when it is not told, by the same rules.
func DataDir(getenv func(string) string) (string, error) {
	return xdg(getenv, "XDG_DATA_HOME", filepath.Join(".local", "share"))
}

func xdg(getenv func(string) string, variable, below string) (string, error) {
	// The rules say to ignore a path that is not absolute: it would mean another place in each
	// working directory.
	if base := getenv(variable); filepath.IsAbs(base) {
		return filepath.Join(base, "margay"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("neither %s nor HOME names a directory", variable)
	}
	return filepath.Join(home, below, "margay"), nil
}

// Path returns the file of a context.
func (s Store) Path(name string) string { return filepath.Join(s.dir, "contexts", name+".yaml") }

// Load reads a context. An error that is fs.ErrNotExist says that there is none of that name.
func (s Store) Load(name string) (*control.Context, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	c, err := control.LoadContext(s.Path(name))
	if err != nil {
		return nil, err
	}
	c.Name = name // the file's name is what a user typed and will type again
	return c, nil
}

// Save writes c under its name and makes it current when no other context is.
func (s Store) Save(c *control.Context) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if err := control.SaveContext(s.Path(c.Name), c); err != nil {
		return err
	}
	current, err := s.Current()
	if err != nil || current != "" {
		return err
	}
	return s.Use(c.Name)
}

// Current returns the name of the current context, "" when there is none. A current context whose file
// is gone is none.
func (s Store) Current() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, currentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read current context: %w", err)
	}
	name := string(bytes.TrimSpace(b))
	if name == "" {
		return "", nil
	}
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("read current context %s: %w", filepath.Join(s.dir, currentFile), err)
	}
	if _, err := os.Stat(s.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return name, nil
}

// Use makes a context current.
func (s Store) Use(name string) error {
	if _, err := s.Load(name); err != nil {
		return err
	}
	// Renamed into place, so that a command that runs at the same time reads the old name or the new.
	f, err := os.CreateTemp(s.dir, "."+currentFile+".*")
	if err != nil {
		return fmt.Errorf("use context %s: %w", name, err)
	}
	_, err = f.WriteString(name + "\n")
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.dir, currentFile))
	}
	if err != nil {
		return fmt.Errorf("use context %s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Delete removes a context. The cluster it names knows nothing of it.
func (s Store) Delete(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Remove(s.Path(name)); err != nil {
		return fmt.Errorf("delete context %s: %w", name, err)
	}
	return nil
}

// List returns the names, sorted.
func (s Store) List() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "contexts"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list contexts: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && control.ValidName(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func checkName(name string) error {
	if !control.ValidName(name) {
		return fmt.Errorf("context %q: want a name of %s", name, control.NameRule)
	}
	return nil
}
