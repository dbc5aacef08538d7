// SPDX-License-Identifier: Apache-2.0

// Package contexts finds context files by name in the user's configuration directory; it reads them and writes
// nothing, and refuses names that could leave the directory.
package contexts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Load reads NAME.yaml.
func Load(name string) (*control.Context, error) {
	if !control.ValidName(name) {
		return nil, code.New(code.BadRequest, "context %.100q: a name is %s", name, control.NameRule)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, code.New(code.NotFound, "context %q: no configuration directory: %w", name, err)
	}
	k, err := control.LoadContext(filepath.Join(dir, "margay", "contexts", name+".yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, code.New(code.NotFound, "context %q: %w", name, err)
	}
	if err != nil {
		return nil, code.New(code.BadRequest, "context %q: %w", name, err)
	}
	return k, nil
}
