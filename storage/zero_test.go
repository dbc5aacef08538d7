// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

// room is how many zeros a segment's file ends with.
func room(t *testing.T, fs vfs.FS, base uint64) int {
	t.Helper()
	b := fileBytes(t, fs, segment.Name(base))
	return len(b) - len(bytes.TrimRight(b, "\x00"))
}

// Zeros lie behind the end while small appends are flushed, and are nowhere once the segment is finished, the log is
// closed, or the power was cut: then nothing is reported, because nothing was lost.
func TestZerosAhead(t *testing.T) {
	mem := newFS(t)
	o := options(mem)
	o.ZeroAhead, o.SegmentBytes = true, storage.DefaultSegmentBytes
	d, err := storage.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1, time: 1000}
	l.must(l.checkpoint(1)...)
	for n := range 300 {
		l.must(l.records(1)...)
		l.flush()
		if got := room(t, mem, 0); got == 0 || got > 80<<10 {
			t.Fatalf("%d zeros behind %d appends", got, n)
		}
	}
	l.must(l.assign(records(t, 1, 600<<10))...) // a large one goes over them, and is followed by none
	if got := room(t, mem, 0); got != 0 {
		t.Errorf("%d zeros behind a large append", got)
	}
	l.must(l.records(1)...)
	l.flush()
	if room(t, mem, 0) == 0 {
		t.Error("no zeros behind the append that follows it")
	}

	crashed := mem.Crash(nil)
	want := all(t, d)
	o.FS = crashed
	again, report, err := storage.Open(o, nil)
	if err != nil || report.Tail != nil {
		t.Fatalf("after a power cut: %+v, %v", report, err)
	}
	if !bytes.Equal(all(t, again), want) || room(t, crashed, 0) != 0 {
		t.Errorf("after a power cut the log is another, or %d zeros are left", room(t, crashed, 0))
	}

	l.must(l.checkpoint(1)...)
	if got := room(t, mem, 0); got != 0 {
		t.Errorf("%d zeros in a finished segment", got)
	}
	last := d.Segments()[1].BaseSequence
	l.must(l.records(1)...)
	if err := d.Close(); err != nil || room(t, mem, last) != 0 {
		t.Errorf("%d zeros in a log that is closed, %v", room(t, mem, last), err)
	}
}

// Where blocks are short they are for records: no zeros are written, and nothing is refused for them.
func TestZerosAreNotWrittenWhereRoomIsShort(t *testing.T) {
	mem := newFS(t)
	mem.SetCapacity(100 << 10)
	o := options(mem)
	o.ZeroAhead = true
	d, err := storage.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1, time: 1000}
	l.must(l.checkpoint(1)...)
	taken := 0
	for {
		if err := d.Append(l.assign(records(t, 1, 200))...); err != nil {
			break
		}
		taken++
	}
	if held := int(d.State().Bytes); taken == 0 || held < 90<<10 {
		t.Errorf("the disk was full with %d bytes of records", held)
	}
}

// A finished segment whose zeros the power cut has brought back is taken by its index all the same, and other bytes behind
// its end are not.
func TestZerosBehindAFinishedSegment(t *testing.T) {
	for behind, wantRebuilt := range map[string]int{string(make([]byte, 5000)): 0, "": 0, "\x00\x01": -1} {
		mem := newFS(t)
		l, d := create(t, mem)
		l.fill(2, 10)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		name := segment.Name(0)
		put(t, mem, name, append(fileBytes(t, mem, name), behind...))
		o := options(mem)
		_, report, err := storage.Open(o, nil)
		if wantRebuilt < 0 {
			if err == nil {
				t.Errorf("bytes behind a finished segment pass: %+v", report)
			}
			continue
		}
		if err != nil || len(report.Rebuilt) != wantRebuilt {
			t.Errorf("with %d zeros: %+v, %v", len(behind), report, err)
		}
	}
}
