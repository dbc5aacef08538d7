// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// step is one command of a page and what the page says of it.
type step struct {
	line       int // of the command
	command    string
	background bool     // ended with " &": goes on until the page ends
	exit       int      // the exit code that the page announces, 0 unless it does
	want       []string // lines of output, with wildcards
}

var (
	opening   = regexp.MustCompile("^(```+)console\\s*$")
	announced = regexp.MustCompile(`\s+# exits (\d+)\s*$`)
)

// parse returns the steps of a page: in each fenced block of language console, a line that starts with "$ " is a
// command, lines that start with "> " right below continue it, and the others are what it prints.
func parse(text string) ([]step, error) {
	var steps []step
	fence := "" // what closes the block we are in
	continued := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		if fence == "" {
			if m := opening.FindStringSubmatch(line); m != nil {
				fence, continued = m[1], false
				if len(steps) > 0 {
					trimBlankEnd(&steps[len(steps)-1])
				}
				steps = append(steps, step{}) // what stands before the block's first command; dropped below
			}
			continue
		}
		last := &steps[len(steps)-1]
		switch {
		case line == fence:
			fence = ""
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
			continued = true
		case continued && (strings.HasPrefix(line, "> ") || line == ">"):
			last.command += "\n" + strings.TrimPrefix(line[1:], " ")
		case last.line == 0 && line != "":
			return nil, fmt.Errorf("%d: output before the block's first command", i+1)
		default:
			continued = false
			last.want = append(last.want, line)
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("%d: console block is not closed", strings.Count(text, "\n")+1)
	}
	var out []step
	for _, s := range steps {
		if s.line > 0 {
			trimBlankEnd(&s)
			s.finish()
			out = append(out, s)
		}
	}
	return out, nil
}

// trimBlankEnd drops blank lines behind the output: they set commands apart for the reader's eye.
func trimBlankEnd(s *step) {
	for len(s.want) > 0 && s.want[len(s.want)-1] == "" {
		s.want = s.want[:len(s.want)-1]
	}
}

// finish reads the two marks that a command may end with.
func (s *step) finish() {
	if m := announced.FindStringSubmatch(s.command); m != nil {
		s.exit, _ = strconv.Atoi(m[1]) // digits only; one too long for an int matches no exit code either
		s.command = strings.TrimSuffix(s.command, m[0])
	}
	if command, ok := strings.CutSuffix(s.command, " &"); ok {
		s.command, s.background = command, true
	}
}
