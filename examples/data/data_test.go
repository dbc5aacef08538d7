// SPDX-License-Identifier: Apache-2.0

package data_test

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"margay.dev/examples/data"
)

// The demo's summary, the README and the benchmarks quote figures of this very table, so its bytes may not drift.
func TestBirdstrikesIsTheTableThatTheDocumentsQuote(t *testing.T) {
	sum := sha256.Sum256(data.Birdstrikes())
	const want = "b2a934ab7ddca6e6164db5ab54e0c53f8a0270f968bed06e9564605de7ed32ae"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("sha256 of birdstrikes.csv = %s, want %s", got, want)
	}
}

func TestLinesAreTheRecordsOfTheTable(t *testing.T) {
	lines := slices.Collect(data.Lines())
	if len(lines) != data.Records {
		t.Fatalf("Lines yielded %d lines, want %d", len(lines), data.Records)
	}
	whole := data.Header() + "\n" + strings.Join(lines, "\n") + "\n"
	if whole != string(data.Birdstrikes()) {
		t.Error("the header and the lines put together differ from the table")
	}
	rows, err := csv.NewReader(strings.NewReader(whole)).ReadAll()
	if err != nil {
		t.Fatalf("parse birdstrikes.csv: %v", err)
	}
	for i, line := range lines {
		if got, want := data.Airport(line), rows[i+1][0]; got != want || got == "" {
			t.Fatalf("Airport of line %d = %q, want %q", i+2, got, want)
		}
	}
}

func TestLinesStopsWhenAsked(t *testing.T) {
	n := 0
	for range data.Lines() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("took %d lines, want 3", n)
	}
}

func TestBirdstrikesBelongsToTheCaller(t *testing.T) {
	data.Birdstrikes()[0] = 'X'
	if got := data.Birdstrikes()[0]; got != 'A' {
		t.Errorf("first byte = %q after a caller changed its copy, want 'A'", got)
	}
}
