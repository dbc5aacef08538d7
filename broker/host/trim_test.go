// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/stream"
	"margay.dev/storage"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// put publishes a record and waits for its answer.
func put(t *testing.T, s *host.Shard, a *hosttest.Answers, corr uint64) *code.Error {
	t.Helper()
	return putBatch(t, s, a, corr, 1)
}

// putBatch is put of a batch of so many records.
func putBatch(t *testing.T, s *host.Shard, a *hosttest.Answers, corr uint64, records int) *code.Error {
	t.Helper()
	values := make([][]byte, records)
	for i := range values {
		values[i] = hosttest.Value(corr)
	}
	if err := s.Submit(hosttest.Request(t, a, corr, values...)); err != nil {
		return err
	}
	var refused *code.Error
	hosttest.Eventually(t, "an answer", func() bool {
		a.Mu.Lock()
		defer a.Mu.Unlock()
		refused = a.Errs[corr]
		_, ok := a.Acks[corr]
		return ok || refused != nil
	})
	return refused
}

func segmentsOf(t *testing.T, r *hosttest.Rig, s *host.Shard) []string {
	t.Helper()
	names, err := r.FS.List(r.Dir.ShardDir(s.Ref.Log, s.Ref.Shard))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A trim takes what is below it from the readers and from the disk, beside publishers, and stands after a
// restart; a failed removal is made up for.
func TestTrim(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	fs := faultfs.Wrap(mem)
	l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	for i := range uint64(200) {
		if err := put(t, s, a, i); err != nil {
			t.Fatal(err)
		}
	}
	before := len(segmentsOf(t, r, s))
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Remove}, Err: syscall.EIO, Max: 1})
	if earliest, err := s.Trim(hosttest.Within(t), 150); err != nil || earliest != 150 {
		t.Fatalf("trimmed to %d, %v", earliest, err)
	}
	if earliest, err := s.Trim(hosttest.Within(t), 3); err != nil || earliest != 150 {
		t.Fatalf("a lower trim says %d, %v", earliest, err)
	}
	_, err := s.Trim(hosttest.Within(t), 1000)
	if !errors.Is(err, code.OutOfRange) {
		t.Fatalf("a trim beyond the end: %v", err)
	}
	if err := put(t, s, a, 200); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the segments below to go", func() bool { return len(segmentsOf(t, r, s)) <= before/2 })
	r.Stop()
	r = hosttest.Start(t, fs, r.Plane)
	s = r.Shard(l.ID, 0)
	if v := s.View(); v.Start.Offset != 150 || v.NextOffset != 201 {
		t.Fatalf("after a restart %+v", v)
	}
	if earliest, err := s.TrimTime(hosttest.Within(t), time.Now().Add(time.Hour).UnixMicro()); err != nil || earliest != 201 {
		t.Fatalf("trimmed to %d, %v", earliest, err)
	}
	if err := put(t, s, a, 201); err != nil || a.Acks[201].BaseOffset != 201 {
		t.Fatalf("the next record: %+v, %v", a.Acks[201], err)
	}
	if got := hosttest.Records(t, s); len(got) != 1 || got[201] != string(hosttest.Value(201)) {
		t.Fatalf("readers see %v", got)
	}
}

// A log that is to drop its oldest goes on when the disk is full: nothing is refused, what is left is the
// newest without a hole, and the reserve stays.
func TestDropOldest(t *testing.T) {
	for _, segment := range []int64{32 << 10, 0} { // many segments, and one that must be closed first
		t.Run(fmt.Sprint(segment), func(t *testing.T) {
			mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
			mem.SetCapacity(1 << 20)
			l := hosttest.Log(func(l *control.Log) { l.SegmentBytes, l.OnFull = segment, control.OnFullDropOldest })
			r := hosttest.Start(t, mem, hosttest.NewPlane(l))
			s := r.Shard(l.ID, 0)
			a := hosttest.NewAnswers()
			const total = 20_000 // some three times the disk
			for i := uint64(0); i < total; {
				next := min(i+50, total)
				for ; i < next; i++ {
					if err := s.Submit(hosttest.Request(t, a, i)); err != nil {
						t.Fatal(err)
					}
				}
				hosttest.Eventually(t, "the answers", func() bool { return a.N.Load() == int64(next) })
			}
			if len(a.Errs) > 0 {
				t.Fatalf("%d publishes were refused, such as %v", len(a.Errs), first(a.Errs))
			}
			v := s.View()
			if v.Start.Offset == 0 || v.Ceiling != total || v.Ceiling-v.Start.Offset < total/20 {
				t.Fatalf("readers may see %d to %d", v.Start.Offset, v.Ceiling)
			}
			got := hosttest.Records(t, s)
			for i := v.Start.Offset; i < total; i++ {
				if got[i] != string(hosttest.Value(i)) {
					t.Fatalf("offset %d holds %.20q", i, got[i])
				}
			}
		})
	}
}

func first(m map[uint64]*code.Error) error {
	for _, err := range m {
		return err
	}
	return nil
}

// A log drops nothing when that does not help: others have filled the disk.
func TestDropOldestGivesUpNothingInVain(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	const roomy = 1 << 20
	mem.SetCapacity(roomy)
	l := hosttest.Log(func(l *control.Log) { l.OnFull = control.OnFullDropOldest })
	r := hosttest.Start(t, mem, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	for i := range uint64(50) {
		if err := put(t, s, a, i); err != nil {
			t.Fatal(err)
		}
	}
	free, err := mem.Free("/data")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(roomy - int64(free) + 48<<10) // others have left less than the reserve
	corr := uint64(50)
	for ; corr < 1000; corr++ {
		if err := put(t, s, a, corr); err != nil {
			if !errors.Is(err, code.StorageFull) {
				t.Fatalf("on a disk that others have filled: %v", err)
			}
			break
		}
	}
	if v := s.View(); v.Start.Offset != 0 || v.Ceiling != corr || corr == 1000 {
		t.Fatalf("after %d records %+v", corr, v)
	}
}

// Files that are gone are not waited for: whatever a power cut leaves under fsync never, the log begins at or
// behind where its files do.
func TestTheLogBeginsWhereItsFilesDo(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		mem := memfs.New(rng)
		l := hosttest.Log(func(l *control.Log) {
			l.SegmentBytes, l.MaxBytes, l.Fsync = 4<<10, 8<<10, control.FsyncNever
		})
		p := hosttest.NewPlane(l)
		r := hosttest.Start(t, mem, p)
		s := r.Shard(l.ID, 0)
		a := hosttest.NewAnswers()
		for i := range uint64(100 + rng.IntN(40)) {
			if err := put(t, s, a, i); err != nil {
				t.Fatal(err)
			}
		}
		hosttest.Eventually(t, "retention to move the start", func() bool { return s.View().Start.Offset > 0 })
		after := mem.Crash(rng)
		r.Stop()
		r = hosttest.Start(t, after, p)
		s = r.Shard(l.ID, 0)
		hosttest.Eventually(t, "a beginning that retention does not move meanwhile", func() bool {
			start := s.View().Start
			_, err := s.Read(nil, start.Sequence, 1<<10)
			if errors.Is(err, storage.ErrDropped) && s.View().Start == start {
				t.Fatalf("seed %d: the log begins at %+v, and its files do not", seed, start)
			}
			return !errors.Is(err, storage.ErrDropped)
		})
		r.Stop()
	}
}

// A reader that stands at the very batch inside which a trim begins the log is told of the gap, too.
func TestTrimInsideTheBatchAReaderStandsAt(t *testing.T) {
	l := hosttest.Log(nil)
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	if err := s.Submit(hosttest.Request(t, a, 0, hosttest.Value(0), hosttest.Value(1), hosttest.Value(2), hosttest.Value(3))); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "an answer", func() bool { return a.N.Load() == 1 })
	out := &hosttest.Lane{}
	sub, _, err := stream.Open(hosttest.Within(t), out, &wire.Subscribe{Log: l.ID, UntilMark: true}, []stream.Part{
		{Start: wire.Start{Kind: wire.StartOffset, At: 1}, Shard: s},
	}, time.Now(), stream.Durable{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trim(hosttest.Within(t), 3); err != nil {
		t.Fatal(err)
	}
	if end := sub.Serve(hosttest.Within(t)); end == nil || end.Code != 0 {
		t.Fatalf("the subscription ended with %+v", end)
	}
	told := out.Told(t)
	if len(told) == 0 || told[0].Type != wire.TypeGap || told[0].From != 1 || told[0].To != 3 || told[0].Gap != wire.GapRetention {
		t.Fatalf("told %+v, want the gap first", told)
	}
}
