// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// cacheLog is a shard's directory with a record, a key that expired, and the record again as a leader carries it.
func cacheLog(t *testing.T) string {
	t.Helper()
	id := batch.LogID{15: 9}
	dir := t.TempDir()
	shard := filepath.Join(dir, "shards", id.String(), "0")
	if err := vfs.MakeDir(vfs.OS(), dir, filepath.Dir(shard)); err != nil {
		t.Fatal(err)
	}
	d, err := storage.Create(storage.Options{FS: vfs.OS(), Dir: shard, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	w := storagetest.NewWriter()
	record := batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: w.Time}
	builder := batch.NewBuilder(batch.Limits{})
	if err := builder.Add(record); err != nil {
		t.Fatal(err)
	}
	written, err := builder.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	carried, err := batch.BuildCarried([]batch.Carried{{Record: record, Generation: 1, AppendTime: w.Time}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	opening := w.Checkpoint(1, 0)
	w.Generation = 2
	if err := d.Append(append(opening, w.Assign(written), w.Assign(batch.BuildExpired([][]byte{[]byte("gone")}, w.Time)), w.Assign(carried))...); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLogToolsShowWhatIsCarriedAndExpired(t *testing.T) {
	dir := cacheLog(t)
	got := shell{}.run(t.Context(), "log", "dump", dir)
	if want := "0/0\tk\tv\n0/1\tgone\t(tombstone)\t(expired)\n0/0\tk\tv\t(carried to sequence 3)\n"; got.code != 0 || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	if got = (shell{}).run(t.Context(), "log", "dump", dir, "-o", "raw"); got.code != 0 || got.out != "v\n\nv\n" {
		t.Errorf("raw: %+v", got)
	}
	got = shell{}.run(t.Context(), "log", "dump", dir, "-o", "json")
	type record struct {
		Offset, Sequence, Generation uint64
		Carried, Expired             bool
	}
	var records []record
	for line := range strings.Lines(got.out) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records = append(records, r)
	}
	want := []record{{0, 1, 2, false, false}, {1, 2, 2, false, true}, {0, 3, 1, true, false}}
	if len(records) != len(want) || records[0] != want[0] || records[1] != want[1] || records[2] != want[2] {
		t.Errorf("%+v, want %+v", records, want)
	}
	if got = (shell{}).run(t.Context(), "log", "verify", dir); got.code != 0 || !strings.Contains(got.out, "1 expired and 1 carried records") {
		t.Errorf("verify: %+v", got)
	}
	got = shell{}.run(t.Context(), "log", "verify", dir, "-o", "json")
	var shard struct {
		Segments []struct{ Offset, NextOffset, Records, Expired, Carried uint64 }
	}
	if err := json.Unmarshal([]byte(got.out), &shard); err != nil || len(shard.Segments) != 1 {
		t.Fatalf("verify: %+v, %v", got, err)
	}
	if s := shard.Segments[0]; s.Records != 2 || s.Expired != 1 || s.Carried != 1 {
		t.Errorf("verify counts %+v", s)
	}
}

// What a log says of groups is printed by its names, and of a record that its batch settles messages.
func TestLogDumpShowsWhatGroupsKnow(t *testing.T) {
	id, dir := batch.LogID{15: 9}, t.TempDir()
	shard := filepath.Join(dir, "shards", id.String(), "0")
	if err := vfs.MakeDir(vfs.OS(), dir, filepath.Dir(shard)); err != nil {
		t.Fatal(err)
	}
	d, err := storage.Create(storage.Options{FS: vfs.OS(), Dir: shard, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	builder := batch.NewBuilder(batch.Limits{})
	if err := builder.Add(batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 1}); err != nil {
		t.Fatal(err)
	}
	if err := builder.SetSettlement(batch.Settlement{Group: 0xabc, Tokens: []batch.SettledToken{{HandOut: 1}, {HandOut: 2, Offset: 5}}}); err != nil {
		t.Fatal(err)
	}
	written, err := builder.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	w := storagetest.NewWriter()
	groups := batch.BuildControl(batch.Group{ID: 0xabc, Name: "workers"}, batch.Settled{Group: 0xabc}, batch.Attempt{Group: 0xabc},
		batch.Dead{Group: 0xabc, Reason: batch.DeadRejected}, batch.Command{Group: 0xabc})
	if err := d.Append(append(w.Checkpoint(1, 0), w.Assign(groups), w.Assign(written))...); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	got := shell{}.run(t.Context(), "log", "dump", dir, "--control")
	for _, want := range []string{" group {", "Name:workers", " settled {", " attempt {", " dead {", " command {", "0/0\tk\tv\t(settles 2 of group 0000000000000abc)\n"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	got = shell{}.run(t.Context(), "log", "dump", dir, "-o", "json")
	if !strings.Contains(got.out, `"settlement":{"Group":2748,`) {
		t.Errorf("%+v", got)
	}
}
