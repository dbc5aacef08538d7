// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

var metaSeed = flag.Uint64("meta.seed", 0, "replay the metamorphic run of this seed only")

// TestMetamorphic runs one list of operations on records under many configurations: file system, segment and checkpoint
// size, grouping of appends, flushes, restarts, kills, descriptors. None of them may show in an answer.
func TestMetamorphic(t *testing.T) {
	seeds := []uint64{1, 2, 3, rand.Uint64()}
	if *metaSeed != 0 {
		seeds = []uint64{*metaSeed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			ops := metaOps(rand.New(rand.NewPCG(seed, 2)))
			var want []string
			for i := range uint64(8) {
				c := metaConfigOf(rand.New(rand.NewPCG(seed, 100+i)), i)
				got := c.run(t, ops)
				if i == 0 {
					want = got
					continue
				}
				for j := range want {
					if got[j] != want[j] {
						t.Fatalf("operation %d, %+v, answers %q under %+v, %q before; replay with -meta.seed=%d", j, ops[j], got[j], c, want[j], seed)
					}
				}
			}
		})
	}
}

// metaOp is an operation in terms of records, which no configuration changes.
type metaOp struct {
	kind    string // publish, read, time, trim, cut
	count   int    // records of a publish
	size    int
	tick    int64
	portion float64 // where, between the start and the end of the log
}

func metaOps(rng *rand.Rand) []metaOp {
	ops := make([]metaOp, 250)
	for i := range ops {
		op := metaOp{kind: "publish", count: 1 + rng.IntN(4), size: rng.IntN(400), tick: rng.Int64N(4), portion: rng.Float64()}
		if rng.IntN(10) == 0 {
			op.size = rng.IntN(40_000)
		}
		switch n := rng.IntN(20); {
		case n < 3:
			op.kind = "read"
		case n < 5:
			op.kind = "time"
		case n == 5 && i > 50:
			op.kind = "trim"
		case n == 6:
			op.kind = "cut"
			op.portion = 1 - op.portion/10
		}
		ops[i] = op
	}
	return ops
}

// metaConfig is what must not show.
type metaConfig struct {
	FS           string
	SegmentBytes int64
	Parts        int
	Filler       int
	Group        int // batches in one append
	FlushEvery   int // operations; 0 for never
	RestartEvery int
	KillEvery    int
	Files        int
	ReadBytes    int
	ZeroAhead    bool
	Control      int // a control batch after so many batches
}

func metaConfigOf(rng *rand.Rand, i uint64) metaConfig {
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	return metaConfig{
		FS:           []string{"memory", "memfs", "os", "memfs"}[i%4],
		SegmentBytes: int64(pick(4<<10, 16<<10, 100<<10, 1<<30)),
		Parts:        pick(1, 1, 2, 4), Filler: pick(0, 100, 4000), Group: pick(1, 2, 7),
		FlushEvery: pick(0, 1, 10), RestartEvery: pick(0, 7, 60), KillEvery: pick(0, 13, 50), Files: pick(0, 1, 100),
		ReadBytes: pick(1, 1000, 100_000, 4<<20), ZeroAhead: pick(0, 1) == 1, Control: pick(2, 10, 1000),
	}
}

// metaRun is one run of the operations.
type metaRun struct {
	c       metaConfig
	t       *testing.T
	o       storage.Options
	l       storage.Log
	w       *storagetest.Writer
	queue   []batch.Batch
	batches int
	now     int64  // append time
	floor   uint64 // offset below which a trim allowed records to go
}

func (c metaConfig) run(t *testing.T, ops []metaOp) []string {
	r := &metaRun{c: c, t: t, w: storagetest.NewWriter()}
	switch c.FS {
	case "memory":
		r.l = storage.NewMemory(storage.Options{ID: logID})
	case "os":
		r.o = options(vfs.OS(), t.TempDir())
	case "memfs":
		r.o = options(memfs.New(nil), "/data")
	}
	if r.l == nil {
		r.o.SegmentBytes, r.o.Files, r.o.ZeroAhead = c.SegmentBytes, storage.NewFiles(c.Files), c.ZeroAhead
		r.l = create(t, r.o)
	}
	defer func() { _ = r.l.Close() }()
	r.now = 1000
	answers := make([]string, len(ops))
	for i, op := range ops {
		answers[i] = r.do(op)
		r.between(i + 1)
	}
	return answers
}

func (r *metaRun) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%+v: %v", r.c, err)
	}
}

func (r *metaRun) do(op metaOp) string {
	if op.kind != "publish" {
		r.append()
	}
	s := r.l.State()
	at := r.floor + uint64(op.portion*float64(s.NextOffset-r.floor))
	switch op.kind {
	case "publish":
		return r.publish(op)
	case "read":
		return r.read(at)
	case "time":
		us := 1000 + int64(op.portion*float64(r.now-1000))
		offset, err := r.l.FindTime(us)
		r.must(err)
		return fmt.Sprint("time ", max(offset, r.floor))
	case "trim":
		seq, err := r.l.FindOffset(at)
		r.must(err)
		_, err = r.l.DropBefore(seq)
		r.must(err)
		r.floor = at
		return fmt.Sprint("trim ", at)
	default:
		return r.cut(at)
	}
}

func (r *metaRun) publish(op metaOp) string {
	values := make([][]byte, op.count)
	for i := range values {
		values[i] = storagetest.Value(r.w.Offset+uint64(i), op.size)
	}
	s := r.l.State()
	if s.NeedsCheckpoint && len(r.queue) == 0 || s.SegmentBytes >= r.c.SegmentBytes {
		r.append()
		for _, part := range r.w.Checkpoint(r.c.Parts, r.c.Filler) {
			r.queue = append(r.queue, r.at(part))
		}
		r.append()
	}
	r.now += op.tick
	r.queue = append(r.queue, r.at(r.w.Records(values...)))
	if r.batches++; r.batches%r.c.Control == 0 {
		r.queue = append(r.queue, r.at(r.w.Control()), r.at(r.w.Carried(r.c.Control, 500)))
	}
	if len(r.queue) >= r.c.Group {
		r.append()
	}
	return fmt.Sprint("published to ", r.w.Offset)
}

// at gives a batch the time of the last records: what carries none must not change the times of those that do.
func (r *metaRun) at(b batch.Batch) batch.Batch {
	b.Assign(batch.Assigned{
		Sequence: b.Sequence(), BaseOffset: b.BaseOffset(), Generation: b.Generation(), AppendTime: r.now,
		Flushed: min(b.Sequence(), r.l.State().Flushed),
	})
	return b
}

func (r *metaRun) append() {
	r.t.Helper()
	r.must(r.l.Append(r.queue...))
	r.queue = nil
}

// read reads all records from an offset on and returns their checksum.
func (r *metaRun) read(from uint64) string {
	seq, err := r.l.FindOffset(from)
	r.must(err)
	h, n := sha256.New(), 0
	for end := r.l.State().Length; seq < end; {
		run, err := r.l.Read(seq, end, r.c.ReadBytes)
		r.must(err)
		for len(run) > 0 {
			b, err := batch.CheckStored(run)
			r.must(err)
			run = run[len(b):]
			seq++
			if !b.HasOffsets() {
				continue
			}
			it, offset := b.Records(), b.BaseOffset()
			for rec := (batch.Record{}); ; offset++ {
				ok, err := it.Next(&rec)
				r.must(err)
				if !ok {
					break
				}
				if offset >= from {
					fmt.Fprintln(h, offset, b.AppendTime(), len(rec.Value))
					h.Write(rec.Value)
					n++
				}
			}
		}
	}
	return fmt.Sprintf("%d records, %x", n, h.Sum(nil))
}

// cut cuts the log before the batch that holds an offset.
func (r *metaRun) cut(at uint64) string {
	seq, err := r.l.FindOffset(at)
	r.must(err)
	if seq < r.l.State().Length {
		r.must(r.l.Truncate(seq))
	}
	s := r.l.State()
	r.w.Sequence, r.w.Offset = s.Length, s.NextOffset
	r.w.Generation++
	r.floor = min(r.floor, s.NextOffset)
	return fmt.Sprint("cut to ", s.NextOffset)
}

// between does what must not show.
func (r *metaRun) between(i int) {
	every := func(n int) bool { return n > 0 && i%n == 0 }
	if every(r.c.FlushEvery) {
		_, err := r.l.Flush()
		r.must(err)
	}
	clean, kill := every(r.c.RestartEvery), every(r.c.KillEvery)
	if (!clean && !kill) || r.o.FS == nil || r.l.State().NeedsCheckpoint {
		return
	}
	if clean {
		r.must(r.l.Close())
	}
	before := r.l.State()
	r.o.Files = storage.NewFiles(r.c.Files)
	l, _, err := storage.Open(r.o, nil)
	r.must(err)
	r.l = l
	after := l.State()
	before.Flushed, before.FlushedOffset = after.Flushed, after.FlushedOffset
	if after != before || !slices.Equal(l.Segments(), l.Segments()) {
		r.t.Fatalf("%+v: opened again with %+v, was %+v", r.c, after, before)
	}
}
