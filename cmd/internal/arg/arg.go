// SPDX-License-Identifier: Apache-2.0

// Package arg turns what a user types (starting points, key rules, headers) into values; it touches
// nothing outside its arguments and refuses whatever it does not fully understand.
package arg

import (
	"fmt"
	"strings"
)

// Header splits NAME=VALUE at the first "=". An empty value is a value; an empty name is refused.
func Header(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return "", "", fmt.Errorf("header %q: want NAME=VALUE", s)
	}
	return name, value, nil
}
