// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const guaranteesPage = "docs/guarantees.md"

// notYet in a promise's scope says that it is not promised, so that it needs no test.
const notYet = "not promised yet"

var (
	promiseID = regexp.MustCompile(`^[A-Z]{1,2}[0-9]+$`)
	// testName is how pages name a test: the package's folder, or one file, then the function and maybe a subtest.
	testName = regexp.MustCompile("`([A-Za-z0-9_./-]+): ((?:Test|Fuzz|Example)[A-Za-z0-9_]*)[^`]*`")
	tableRow = regexp.MustCompile(`^\s*\|(.*)\|\s*$`)
	idInText = regexp.MustCompile(`\b[A-Z]{1,2}[0-9]+\b`)
	ruleRow  = regexp.MustCompile(`^[\s|:-]+$`)
)

// row is one line of a Markdown table.
type row struct {
	line  int
	cells []string
}

// tables returns the tables of a page, each with its header row first.
func (p *page) tables() [][]row {
	var all [][]row
	var open []row
	for i, line := range p.prose {
		m := tableRow.FindStringSubmatch(line)
		if m == nil {
			if open != nil {
				all, open = append(all, open), nil
			}
			continue
		}
		if ruleRow.MatchString(line) {
			continue
		}
		r := row{line: i + 1}
		for cell := range strings.SplitSeq(strings.ReplaceAll(m[1], `\|`, "\x00"), "|") {
			r.cells = append(r.cells, strings.TrimSpace(strings.ReplaceAll(cell, "\x00", "|")))
		}
		open = append(open, r)
	}
	if open != nil {
		all = append(all, open)
	}
	return all
}

// checkPromises demands a living test behind every promise, and a promise or a test behind every capability that the
// README calls available.
func checkPromises(t *tree) []finding {
	var found []finding
	promised := make(map[string]bool) // by id: false while it is not promised yet
	guarantees := parsePage(t.files[guaranteesPage])
	for _, table := range guarantees.tables() {
		for _, r := range table {
			if len(r.cells) < 4 || !promiseID.MatchString(r.cells[0]) {
				continue
			}
			id := r.cells[0]
			say := func(format string, args ...any) {
				found = append(found, finding{path: guaranteesPage, line: r.line, message: fmt.Sprintf(format, args...)})
			}
			if _, twice := promised[id]; twice {
				say("%s stands here twice", id)
			}
			promised[id] = !strings.Contains(strings.Join(r.cells[2:], " "), notYet)
			tests, gone := t.testsIn(r)
			if promised[id] && tests == 0 {
				say("%s is promised and names no test (write `folder: TestName`, or %q)", id, notYet)
			}
			for _, g := range gone {
				say("%s names %s, which is not there", id, g)
			}
		}
	}
	if _, ok := t.files[guaranteesPage]; !ok {
		found = append(found, finding{path: guaranteesPage, message: "is not there"})
	}
	return append(found, t.checkCapabilities(promised)...)
}

// checkCapabilities reads the README's table whose header has a cell "status".
func (t *tree) checkCapabilities(promised map[string]bool) []finding {
	var found []finding
	readme := parsePage(t.files["README.md"])
	for _, table := range readme.tables() {
		status := slices.IndexFunc(table[0].cells, func(c string) bool { return strings.EqualFold(c, "status") })
		if status < 0 {
			continue
		}
		for _, r := range table[1:] {
			if len(r.cells) <= status {
				continue
			}
			if problem := t.checkCapability(r, strings.ToLower(r.cells[status]), promised); problem != "" {
				found = append(found, finding{path: "README.md", line: r.line, message: problem})
			}
		}
	}
	return found
}

func (t *tree) checkCapability(r row, status string, promised map[string]bool) string {
	switch {
	case strings.HasPrefix(status, "planned"):
		return ""
	case !strings.HasPrefix(status, "available") && !strings.HasPrefix(status, "partial"):
		return fmt.Sprintf("%s: status is available, partial or planned, not %q", r.cells[0], status)
	}
	tests, gone := t.testsIn(r)
	if len(gone) > 0 {
		return fmt.Sprintf("%s: names %s, which is not there", r.cells[0], gone[0])
	}
	if tests > 0 {
		return ""
	}
	for _, id := range idInText.FindAllString(strings.Join(r.cells, " "), -1) {
		if promised[id] {
			return ""
		}
	}
	return fmt.Sprintf("%s: is called %s, and no guarantee with a test and no test stands behind it", r.cells[0], status)
}

// testsIn counts the tests that a row names and returns those that the tree does not have.
func (t *tree) testsIn(r row) (tests int, gone []string) {
	for _, m := range testName.FindAllStringSubmatch(strings.Join(r.cells, " "), -1) {
		tests++
		if !t.hasTest(m[1], m[2]) {
			gone = append(gone, m[1]+": "+m[2])
		}
	}
	return tests, gone
}

func (t *tree) hasTest(where, name string) bool {
	for file, text := range t.files {
		if strings.HasSuffix(file, "_test.go") && (file == where || path.Dir(file) == path.Clean(where)) &&
			strings.Contains(text, "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
