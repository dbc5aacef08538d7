// SPDX-License-Identifier: Apache-2.0

// Package data embeds the table that the demo and the examples publish. It only reads that table: it opens no file,
// and it refuses to parse, since a record of the demo is one line as it stands.
package data

import (
	_ "embed"
	"iter"
	"strings"
)

//go:embed birdstrikes.csv
var birdstrikes string

// Records is how many lines Lines yields.
const Records = 10_000

// Birdstrikes returns the whole table as a file would hold it: the header line, then Records lines, each ended by a
// newline. The caller owns the bytes.
func Birdstrikes() []byte { return []byte(birdstrikes) }

// Header returns the first line, the names of the 14 columns, without its newline.
func Header() string {
	header, _, _ := strings.Cut(birdstrikes, "\n")
	return header
}

// Lines yields the table's records in file order, one line each, without the header and without newlines.
func Lines() iter.Seq[string] {
	return func(yield func(string) bool) {
		_, rest, _ := strings.Cut(birdstrikes, "\n")
		for rest != "" {
			var line string
			line, rest, _ = strings.Cut(rest, "\n")
			if !yield(line) {
				return
			}
		}
	}
}

// Airport returns the first column of a line that Lines yielded: the key under which the demo publishes it, so that
// one airport's strikes stay in order.
func Airport(line string) string {
	airport, _, _ := strings.Cut(line, ",")
	return airport
}
