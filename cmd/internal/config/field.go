// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strings"
)

// field is one value of the configuration: where it is in the struct, and how it is named.
type field struct {
	path   string // keys with dots between, as in "log.level"
	value  reflect.Value
	tag    reflect.StructTag
	origin string // where the value came from
	line   int    // in a file
}

// Default is where a value comes from that nobody gave.
const Default = "default"

// variable is the field's name in the environment.
func (f *field) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.path, ".", "_"))
}

// flag is the field's own flag, without dashes; "" for most, which --set reaches.
func (f *field) flag() string { return f.tag.Get("flag") }

func (f *field) secret() bool { return f.tag.Get("secret") == "true" }

// live says whether a running node takes a new value.
func (f *field) live() bool { return f.tag.Get("live") == "true" }

// text is the value as it may be shown.
func (f *field) text() string {
	if f.secret() && !f.value.IsZero() {
		return "***"
	}
	return fmt.Sprint(f.value)
}

// shown is the text of an error about the value; a secret's would repeat it.
func (f *field) shown(err error) string {
	if f.secret() {
		return "the value cannot be used (it is a secret, and not shown)"
	}
	return err.Error()
}

// part is a place in the tree: a value, or a group of them in order.
type part struct {
	key   string
	field *field // nil for a group
	group []*part
}

// tree takes a struct apart, and sets its defaults.
func tree(root reflect.Value, path string) []*part {
	var parts []*part
	for i := range root.NumField() {
		tag := root.Type().Field(i).Tag
		p := &part{key: tag.Get("yaml")}
		at := p.key
		if path != "" {
			at = path + "." + p.key
		}
		if v := root.Field(i); v.Kind() == reflect.Struct {
			p.group = tree(v, at)
		} else {
			p.field = &field{path: at, value: v, tag: tag, origin: Default}
			if d := tag.Get("default"); d != "" {
				if err := set(v, d); err != nil {
					panic(err) // a mistake in a tag of this package, found by any test
				}
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// fields are the values of a tree, in order.
func fields(parts []*part) []*field {
	var all []*field
	for _, p := range parts {
		if p.field != nil {
			all = append(all, p.field)
		}
		all = append(all, fields(p.group)...)
	}
	return all
}

// nearest is the one of some names that a mistyped one may have meant, or "".
func nearest(name string, names []string) string {
	best, at := "", 3 // two letters off at most
	for _, n := range names {
		if d := distance(name, n); d < at && d < len(n)/2+1 {
			best, at = n, d
		}
	}
	return best
}

// distance counts the letters to insert, drop or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
