// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"margay.dev/cluster/process"
)

// What the command line published is there after a kill: every line, those of one key in their order, and each record at
// the offset it had before (S2, S3, S5).
func TestEveryLineComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	const lines, keys = 5000, 13
	p := process.Start(t, process.Config{})
	p.Must(nil, "stream", "create", "lines", "--shards", "4")
	var input strings.Builder
	var want []string
	for i := range lines {
		line := fmt.Sprintf("key-%d line %d", i*i%keys, i)
		if i%1000 == 999 {
			line = fmt.Sprintf("key-%d %d \t%s ä€ \"{}\\", i%keys, i, strings.Repeat("long ", 2000))
		}
		want = append(want, line)
		input.WriteString(line + "\n")
	}
	acks := p.Must(strings.NewReader(input.String()), "pub", "lines", "--lines", "--key-from", `re:^key-\d+`, "--output", "json")
	before := offsetsByLine(t, acks)
	if len(before) != lines {
		t.Fatalf("%d lines are acknowledged, want %d", len(before), lines)
	}
	p.Kill()
	p.Start()

	raw := p.Must(nil, "sub", "lines", "--from", "earliest", "--count", strconv.Itoa(lines), "--output", "raw")
	got := strings.Split(strings.TrimSuffix(raw, "\n"), "\n")
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Fatalf("%d lines went in, and %d others came back", len(want), len(got))
	}
	if got, want := byKey(got), byKey(want); !maps.EqualFunc(got, want, slices.Equal) {
		t.Error("the lines of a key are not in the order in which they were published")
	}

	objects := p.Must(nil, "sub", "lines", "--from", "earliest", "--end", "--output", "json")
	after := map[string]string{}
	for line := range strings.Lines(objects) {
		var rec struct {
			Shard  uint32
			Offset uint64
			Value  string
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		after[rec.Value] = fmt.Sprintf("%d/%d", rec.Shard, rec.Offset)
	}
	for i, line := range want {
		if after[line] != before[i+1] {
			t.Errorf("line %d was acknowledged at %s and lies at %s", i+1, before[i+1], after[line])
		}
	}
}

// offsetsByLine reads what `pub --lines --output json` printed.
func offsetsByLine(t *testing.T, acks string) map[int]string {
	t.Helper()
	byLine := map[int]string{}
	for line := range strings.Lines(acks) {
		var ack struct {
			Line               int
			Shard              uint32
			Offset             uint64
			Flushed, Committed bool
		}
		if err := json.Unmarshal([]byte(line), &ack); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !ack.Flushed || !ack.Committed {
			t.Errorf("line %d is acknowledged, but not flushed and committed: %s", ack.Line, line)
		}
		byLine[ack.Line] = fmt.Sprintf("%d/%d", ack.Shard, ack.Offset)
	}
	return byLine
}

func byKey(lines []string) map[string][]string {
	keys := map[string][]string{}
	for _, line := range lines {
		key, _, _ := strings.Cut(line, " ")
		keys[key] = append(keys[key], line)
	}
	return keys
}
