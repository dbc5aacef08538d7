// SPDX-License-Identifier: Apache-2.0

package contexts_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"margay.dev/cmd/internal/contexts"
	"margay.dev/wire/control"
)

func locate(t *testing.T, home string) contexts.Store {
	t.Helper()
	s, err := contexts.Locate(func(name string) string { return map[string]string{"HOME": home}[name] })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t *testing.T, s contexts.Store, name string) {
	t.Helper()
	if err := s.Save(&control.Context{Name: name, Addresses: []string{"h:1"}}); err != nil {
		t.Fatal(err)
	}
}

func current(t *testing.T, s contexts.Store) string {
	t.Helper()
	name, err := s.Current()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestStore(t *testing.T) {
	home := t.TempDir()
	s := locate(t, home)
	if names, err := s.List(); err != nil || names != nil || current(t, s) != "" {
		t.Errorf("an empty store: %v, %v", names, err)
	}
	save(t, s, "local")
	save(t, s, "dev")
	if got := current(t, s); got != "local" {
		t.Errorf("current is %q, want the first one saved", got)
	}
	if err := s.Use("dev"); err != nil || current(t, s) != "dev" {
		t.Errorf("use dev: %v, current %q", err, current(t, s))
	}
	save(t, s, "local")
	if got := current(t, s); got != "dev" {
		t.Errorf("saving another context made %q current", got)
	}
	if names, err := s.List(); err != nil || !slices.Equal(names, []string{"dev", "local"}) {
		t.Errorf("list: %v, %v", names, err)
	}
	if err := s.Delete("dev"); err != nil || current(t, s) != "" {
		t.Errorf("deleted the current one: %v, current %q", err, current(t, s))
	}
	save(t, s, "local")
	if got := current(t, s); got != "local" {
		t.Errorf("current is %q after the current one was deleted and another saved", got)
	}
	for _, path := range []string{s.Path("local"), filepath.Join(home, ".config", "margay", "current")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want it for its owner only", path, info.Mode(), err)
		}
	}
}

func TestStoreRefuses(t *testing.T) {
	s := locate(t, t.TempDir())
	for _, name := range []string{"", "../x", "a/b", "A", ".hidden"} {
		_, load := s.Load(name)
		for what, err := range map[string]error{
			"load": load, "use": s.Use(name), "delete": s.Delete(name), "save": s.Save(&control.Context{Name: name}),
		} {
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %q: %v, want a refusal of the name", what, name, err)
			}
		}
	}
	_, load := s.Load("absent")
	for what, err := range map[string]error{"load": load, "use": s.Use("absent"), "delete": s.Delete("absent")} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of an absent one: %v", what, err)
		}
	}
}

func TestLocations(t *testing.T) {
	tests := []struct {
		env          map[string]string
		config, data string
	}{
		{map[string]string{"HOME": "/h"}, "/h/.config/margay/contexts/a.yaml", "/h/.local/share/margay"},
		{map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}, "/c/margay/contexts/a.yaml", "/d/margay"},
		{map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "c", "XDG_DATA_HOME": "d"}, "/h/.config/margay/contexts/a.yaml", "/h/.local/share/margay"},
		{map[string]string{}, "", ""},
	}
	for _, test := range tests {
		getenv := func(name string) string { return test.env[name] }
		s, err := contexts.Locate(getenv)
		if err == nil && s.Path("a") != test.config || (err == nil) != (test.config != "") {
			t.Errorf("%v: %q, %v; want %q", test.env, s.Path("a"), err, test.config)
		}
		if dir, err := contexts.DataDir(getenv); dir != test.data || (err == nil) != (test.data != "") {
			t.Errorf("%v: %q, %v; want %q", test.env, dir, err, test.data)
		}
	}
}
