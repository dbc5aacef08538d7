// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// anything stands for any text within a line, and alone on a line for any number of lines.
const anything = "…"

var wildcard = regexp.MustCompile(anything + `|<[a-z][a-z -]*>`)

// matches says whether lines are what want describes. With prefix, lines may go on behind it.
func matches(want, lines []string, prefix bool) bool {
	if len(want) == 0 {
		return prefix || len(lines) == 0
	}
	if want[0] == anything {
		for skip := 0; skip <= len(lines); skip++ {
			if matches(want[1:], lines[skip:], prefix) {
				return true
			}
		}
		return false
	}
	return len(lines) > 0 && matchesLine(want[0], lines[0]) && matches(want[1:], lines[1:], prefix)
}

func matchesLine(want, line string) bool {
	if want == line {
		return true
	}
	var pattern strings.Builder
	pattern.WriteString("^")
	rest := want
	for rest != "" {
		at := wildcard.FindStringIndex(rest)
		if at == nil {
			pattern.WriteString(regexp.QuoteMeta(rest))
			break
		}
		pattern.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		if rest[at[0]:at[1]] == anything {
			pattern.WriteString(".*")
		} else {
			pattern.WriteString(`\S+`)
		}
		rest = rest[at[1]:]
	}
	pattern.WriteString("$")
	ok, err := regexp.MatchString(pattern.String(), line)
	return ok && err == nil
}

// split turns output into lines without trailing blanks.
func split(output string) []string {
	if strings.TrimSpace(output) == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(output, " \t\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return lines
}

// difference shows both sides, from the first line on that cannot be matched.
func difference(want, got []string) string {
	same := 0
	for same < len(want) && same < len(got) && want[same] != anything && matchesLine(want[same], got[same]) {
		same++
	}
	var b strings.Builder
	for _, line := range got[:same] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	for _, line := range want[same:] {
		fmt.Fprintf(&b, "  - %s\n", line)
	}
	for _, line := range got[same:] {
		fmt.Fprintf(&b, "  + %s\n", line)
	}
	return b.String()
}
