// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"strings"
)

// self is how a user can call this binary again: by its bare name when that finds this very file, by its
// path otherwise (`go run` and fresh builds are not on the PATH).
func (a *app) self() string {
	path := a.Executable
	if path == "" {
		return "margay"
	}
	if found, err := exec.LookPath("margay"); err == nil && sameFile(found, path) {
		return "margay"
	}
	return quoteForShell(path)
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// quoteForShell makes a pasted path one word.
func quoteForShell(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:@%+="
	if strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
