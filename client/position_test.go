// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

func TestPositionTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := position{log: batch.LogID{1, 2, 3}}
		n := rapid.IntRange(1, 20).Draw(t, "shards")
		shard := uint32(0)
		for range n {
			shard += rapid.Uint32Range(1, 100).Draw(t, "step")
			p.shards = append(p.shards, shardPosition{shard, rapid.Uint64().Draw(t, "next"), rapid.Uint64().Draw(t, "generation")})
		}
		got, err := parsePosition(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != p.String() {
			t.Fatalf("%s became %s", p.String(), got.String())
		}
	})
}

func TestPositionTokenIsChecked(t *testing.T) {
	p := position{log: batch.LogID{1}, shards: []shardPosition{{0, 5, 1}, {1, 6, 1}}}
	good := p.String()
	swapped := position{log: p.log, shards: []shardPosition{{1, 6, 1}, {0, 5, 1}}}
	empty := position{log: p.log}
	for name, token := range map[string]string{
		"empty": "", "other version": "mp2_" + good[4:], "cut": good[:len(good)-3], "changed": strings.Replace(good, good[10:11], "~", 1),
		"longer": good + "AA", "out of order": swapped.String(), "no shards": empty.String(), "prefix only": "mp1_",
	} {
		if _, err := parsePosition(token); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzParsePosition(f *testing.F) {
	p := position{log: batch.LogID{1}, shards: []shardPosition{{0, 5, 1}, {7, 1 << 60, 3}}}
	f.Add(p.String())
	f.Add("mp1_")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parsePosition(token)
		if err == nil && p.String() != token {
			t.Errorf("%q is taken and means %q", token, p.String())
		}
	})
}
