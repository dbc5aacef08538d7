// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// GC-05: calls of a hundred records, which often begin the next segment, are stored whole or not at all, whenever the node
// is killed: no call has a hole, none is acknowledged in part, and one whose outcome was unknown is completed by its
// client's next try, once (R4, S7).
func TestBatchesAreWholeOverKills(t *testing.T) {
	t.Parallel()
	const records, publishers, shards, perRound = 100, 3, 2, 20
	rounds := 3
	if !testing.Short() {
		rounds = 50
	}
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "whole", Shards: new(shards), SegmentBytes: new(int64(32 << 10))})
	tr := newTraffic(t, "whole")
	for i := range publishers {
		tr.publishBatches(p.Connect(), fmt.Sprintf("%s%0*d", batchesOf, i+1, i), records)
	}
	tr.read(p.Connect(), "tail", shards)
	for round := range rounds {
		tr.allow(perRound)
		tr.progress(fmt.Sprintf("batches to be acknowledged in round %d", round), int64(records*(1+round%6)))
		p.Kill()
		p.Start()
	}
	tr.allow(perRound)
	tr.progress("batches to be acknowledged after the last restart", records)
	tr.stopPublishers()
	batchesAreWhole(t, tr.judge(p.Connect()), records)
	rolled := 0
	for _, files := range segments(t, p, stream) {
		rolled += len(files) - 1
	}
	if rolled < rounds {
		t.Errorf("GC-05: only %d segments were closed, so little is proved", rolled)
	}
}

// batchesOf begins the name of each publisher of batches.
const batchesOf = "batches"

// batchesAreWhole demands each call of publishBatches whole, at consecutive offsets of one shard, or not at all (GC-05).
func batchesAreWhole(t *testing.T, all []client.Record, records int) {
	t.Helper()
	type piece struct {
		shard  uint32
		offset uint64
	}
	calls := map[string][]piece{}
	for _, rec := range all {
		value := string(rec.Value)
		if !strings.HasPrefix(value, batchesOf) {
			continue
		}
		parts := strings.SplitN(value, "/", 4)
		call := parts[0] + "/" + parts[1]
		calls[call] = append(calls[call], piece{rec.Shard, rec.Offset})
	}
	if len(calls) == 0 {
		t.Error("GC-05: no batch was stored, so nothing is proved")
	}
	for call, pieces := range calls {
		if len(pieces) != records {
			t.Errorf("GC-05: of batch %s %d records are stored, want %d or none", call, len(pieces), records)
		}
		for i, at := range pieces {
			if want := (piece{pieces[0].shard, pieces[0].offset + uint64(i)}); at != want {
				t.Errorf("GC-05: record %d of batch %s lies at %+v, want %+v", i, call, at, want)
				break
			}
		}
	}
}
