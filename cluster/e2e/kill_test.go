// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"margay.dev/cluster/process"
	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

const (
	killShards       = 4
	killSegmentBytes = 4 << 10
	killPublishers   = 10
	killReaders      = 5
	batchRecords     = 20
	ackedPerRound    = 300 // then the kill comes, in the middle of the rest
)

// Kills at arbitrary moments lose nothing that was acknowledged, store nothing twice, and publishers and readers go on by
// themselves (ID-12, WR-09, GC-05, GC-09, ST-09; S2, S3, S4, S5, S7, R1, R4).
func TestKilledAgainAndAgainUnderFire(t *testing.T) {
	t.Parallel()
	rounds, perRound := 5, 800
	if !testing.Short() {
		rounds, perRound = 20, 5000
	}
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "fire", Shards: new(killShards), SegmentBytes: new(int64(killSegmentBytes))})
	tr := newTraffic(t, "fire")
	for i := range killPublishers {
		tr.publishAsync(p.Connect(), fmt.Sprintf("p%0*d", i+1, i), 3000)
	}
	tr.publishBatches(p.Connect(), "batches", batchRecords)
	for i := range killReaders {
		tr.read(p.Connect(), fmt.Sprintf("tail-%d", i), killShards)
	}

	rng := rand.New(rand.NewPCG(3, 3))
	for round := range rounds {
		if round < killReaders {
			tr.read(p.Connect(), fmt.Sprintf("joined-in-round-%d", round), killShards)
		}
		tr.allow(perRound)
		tr.progress(fmt.Sprintf("publishes to be acknowledged in round %d", round), ackedPerRound)
		p.Kill()
		killed := time.Now()
		if round%2 == 1 {
			killWhileItRecovers(p, rng)
		}
		p.Start()
		if time.Since(killed) < 2*time.Second {
			continue
		}
		for _, r := range tr.readers {
			r.forgive() // on a machine this slow, the silence may have lasted as long as a client waits
		}
	}
	tr.allow(perRound)
	tr.progress("publishes to be acknowledged after the last restart", ackedPerRound)
	tr.stopPublishers()
	all := tr.judge(p.Connect())
	for _, r := range tr.readers {
		for _, err := range r.idled() {
			t.Errorf("WR-09: reader %s noticed a restart by the silence alone: %v", r.name, err)
		}
	}
	batchesAreWhole(t, all, batchRecords)
	if exit := p.Stop(); exit.Code != 0 {
		t.Errorf("SIGTERM: %v\n%s", exit, exit.Stderr)
	}
	segmentsKeepTheirSize(t, p, stream)
}

// progress waits for n more acknowledgements, and for every reader to get more than it has.
func (tr *traffic) progress(what string, n int64) {
	tr.t.Helper()
	before := make([]uint64, len(tr.readers))
	for i, r := range tr.readers {
		before[i] = r.count()
	}
	goal := tr.acked.Load() + n
	eventually(tr.t, what, func() bool { return tr.acked.Load() >= goal })
	for i, r := range tr.readers {
		eventually(tr.t, "reader "+r.name+" to go on by itself: "+what, func() bool { return r.count() > before[i] })
	}
}

// killWhileItRecovers starts the node a few times and kills it before, or just as, it becomes ready (ST-09).
func killWhileItRecovers(p *process.Process, rng *rand.Rand) {
	for range 2 {
		p.Spawn()
		moment := time.NewTimer(time.Duration(rng.Int64N(int64(150 * time.Millisecond)))) // a fault's time, not a wait
		select {
		case <-moment.C:
		case <-p.Ready():
		case <-p.Exited():
		}
		moment.Stop()
		p.Kill()
	}
}

// forgive forgets how the broker's losses were noticed so far.
func (r *reader) forgive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = nil
}

// segmentsKeepTheirSize demands that no batch begins behind the size at which a segment is closed, and that no segment
// was left without records but the newest (GC-09). A segment that begins with a large checkpoint may grow to sixteen
// times that: otherwise a small segment size would have the shard write more checkpoints than records. Where a generation
// begins, its opening batch comes between that decision and the records.
func segmentsKeepTheirSize(t *testing.T, p *process.Process, stream control.Stream) {
	t.Helper()
	rolled := 0
	for shard, files := range segments(t, p, stream) {
		rolled += len(files) - 1
		for i, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			records, checkpoint, opening := 0, 0, 0
			for at := segment.HeaderSize; at < len(data); {
				b, err := batch.CheckStored(data[at:])
				if err != nil {
					t.Fatalf("GC-09: shard %s %s at %d: %v", shard, name, at, err)
				}
				if b.IsCheckpoint() {
					checkpoint += b.Size()
				} else if begins, most := at-segment.HeaderSize-checkpoint, max(killSegmentBytes, 16*checkpoint); begins > most+opening {
					t.Errorf("GC-09: shard %s %s: a batch begins %d bytes behind the checkpoint, want at most %d", shard, name, begins, most)
				}
				opening = 0
				if !b.IsControl() {
					records += b.Count()
				} else if !b.IsCheckpoint() {
					opening = b.Size()
				}
				at += b.Size()
			}
			if records == 0 && i < len(files)-1 {
				t.Errorf("GC-09: shard %s %s holds no records and is not the newest", shard, name)
			}
		}
	}
	if rolled < 10 {
		t.Errorf("GC-09: only %d segments were closed, so little is proved", rolled)
	}
}
