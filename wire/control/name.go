// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"strings"

	"margay.dev/wire"
)

// DefaultTenant and DefaultNamespace are where a name without them belongs.
const (
	DefaultTenant    = "default"
	DefaultNamespace = "default"
)

// The rule for names is that of the wire, where some of them travel too.
const (
	MaxName  = wire.MaxName
	NameRule = wire.NameRule
)

// ValidName reports whether s follows NameRule.
func ValidName(s string) bool { return wire.ValidName(s) }

// FullName is the address of a log: "tenant/namespace/name".
func FullName(tenant, namespace, name string) string {
	return tenant + "/" + namespace + "/" + name
}

// SplitName takes an address apart. A short one, "name" or "namespace/name", belongs to the given tenant and namespace,
// or to the default ones where those are empty.
func SplitName(address, tenant, namespace string) (t, n, name string, err error) {
	t, n = tenant, namespace
	if t == "" {
		t = DefaultTenant
	}
	if n == "" {
		n = DefaultNamespace
	}
	switch levels := strings.Split(address, "/"); len(levels) {
	case 1:
		name = levels[0]
	case 2:
		n, name = levels[0], levels[1]
	case 3:
		t, n, name = levels[0], levels[1], levels[2]
	default:
		return "", "", "", fmt.Errorf("name %.200q: want name, namespace/name or tenant/namespace/name", address)
	}
	for _, level := range []string{t, n, name} {
		if !ValidName(level) {
			return "", "", "", fmt.Errorf("name %.200q: %.100q is not %s", address, level, NameRule)
		}
	}
	return t, n, name, nil
}
