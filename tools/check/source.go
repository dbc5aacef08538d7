// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// privatePaths are where a contributor's machine keeps things that nobody else has. Written in pieces, since this file
// is checked too.
var privatePaths = regexp.MustCompile("(^|[\\s\"'`(=:])/(" + "wo" + "rk|home/[a-z]+|Users/[A-Za-z]+|tmp/contract)/")

// checkWords refuses text that only means something on one machine.
func checkWords(t *tree) []finding {
	var found []finding
	for _, name := range t.names {
		for i, line := range strings.Split(t.files[name], "\n") {
			if m := privatePaths.FindString(line); m != "" {
				found = append(found, finding{path: name, line: i + 1, message: fmt.Sprintf("names %q, a path of one machine", m)})
			}
		}
	}
	return found
}

// longFile is where a file's length asks for a reason.
const longFile = 500

var (
	longReason = regexp.MustCompile(`(?m)^// Long: \S`)
	readsEnv   = regexp.MustCompile(`\bos\.(Getenv|LookupEnv|Environ)\(`)
)

// checkSource demands a package comment, and warns of long files and of environment reads outside cmd.
func checkSource(t *tree) []finding {
	var found []finding
	documented := make(map[string]bool)
	for _, name := range t.named(".go") {
		text := t.files[name]
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			continue // checkArrows reports it
		}
		dir := path.Dir(name)
		documented[dir] = documented[dir] || file.Doc != nil
		if n := strings.Count(text, "\n"); n >= longFile && !longReason.MatchString(text) {
			found = append(found, finding{
				path: name, warning: true,
				message: fmt.Sprintf("has %d lines: split it by idea, or say why in a comment `// Long: …`", n),
			})
		}
		if !slices.ContainsFunc([]string{"cmd", "tools", "bench", "cluster"}, func(d string) bool { return inside(name, d) }) {
			if at := readsEnv.FindStringIndex(text); at != nil {
				found = append(found, finding{
					path: name, line: 1 + strings.Count(text[:at[0]], "\n"), warning: true,
					message: "reads the environment: only cmd does, and what starts processes",
				})
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			found = append(found, finding{path: dir, message: "the package has no comment that says what it does"})
		}
	}
	return found
}
