// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/cluster/process"
)

func TestMain(m *testing.M) { process.Main(m) }

// A short soak with its restarts is sound, acknowledges, reads, and says so.
func TestSmoke(t *testing.T) {
	t.Parallel()
	cfg := &config{
		Minutes: 0.17, MBPerMinute: 120, LifeMinutes: 30, Margay: process.Binary(t), Dir: t.TempDir() + "/soak",
		every: 500 * time.Millisecond, row: 3 * time.Second,
	}
	var out bytes.Buffer
	p, err := run(t.Context(), cfg, &out)
	if err != nil {
		t.Fatal(err)
	}
	p.print()
	t.Logf("%s", &out)
	if !p.OK {
		t.Error("it is not sound")
	}
	var acked, read uint64
	restarts := 0
	for _, r := range p.Rows {
		acked, read, restarts = acked+r.Acked, read+r.Read, restarts+r.Restarts
	}
	if acked == 0 || read == 0 || restarts != 3 || len(p.Rows) < 3 {
		t.Errorf("%d acknowledged, %d read, %d restarts, %d rows: little is proved", acked, read, restarts, len(p.Rows))
	}
	if _, err := json.Marshal(p); err != nil {
		t.Error(err)
	}
}

// What is read is checked against what was published, byte for byte, without remembering it.
func TestRecords(t *testing.T) {
	b := block()
	tag := history.Tag{Producer: 3, N: 77}
	v := makeValue(b, tag, 5000)
	got, sum, err := check(b, v)
	if got != tag || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	for _, at := range []int{0, 4, headBytes, 2500, len(v) - 1} {
		v[at] ^= 1
		if again, s, err := check(b, v); err == nil && again == tag && s == sum {
			t.Errorf("byte %d differs, and nobody notices", at)
		}
		v[at] ^= 1
	}
	if _, _, err := check(b, v[:headBytes-1]); err == nil {
		t.Error("a value without a head passes")
	}
}

// Growth within a life fails the run; what an earlier life held, and what its first minutes did, does not.
func TestGrowthIsJudged(t *testing.T) {
	mib := func(n float64) float64 { return n * (1 << 20) }
	for name, c := range map[string]struct {
		rss map[int][]float64 // by life
		ok  bool
	}{
		"steady":               {map[int][]float64{1: {100, 400, 200, 201, 210}}, true},
		"grows":                {map[int][]float64{1: {100, 150, 200, 220, 260}}, false},
		"grows in its 2nd":     {map[int][]float64{1: {100, 150, 200, 200}, 2: {100, 150, 200, 260}}, false},
		"the next one is more": {map[int][]float64{1: {100, 150, 200, 200}, 2: {100, 150, 400, 400}}, true},
		"little":               {map[int][]float64{1: {10, 10, 10, 15}}, true},
	} {
		p := &report{Config: &config{}, say: func(string, ...any) {}, lives: len(c.rss)}
		for life := 1; life <= len(c.rss); life++ {
			for _, v := range c.rss[life] {
				p.Rows = append(p.Rows, row{Life: life, Whole: true, Paced: true, RSS: mib(v), Goroutines: 100, Descriptors: 50})
			}
		}
		p.judge()
		if p.OK != c.ok || len(p.Growth) != 3*len(c.rss) {
			t.Errorf("%s: sound %v, want %v: %+v", name, p.OK, c.ok, p.Growth)
		}
	}
}
