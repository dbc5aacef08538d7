// SPDX-License-Identifier: Apache-2.0

package segment_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// The format is frozen: -update exists to add vectors. A vector that changes is a broken format.
var update = flag.Bool("update", false, "write the golden vectors")

const vectorDir = "../../wire/testdata/vectors/segment"

// vector is the JSON beside the bytes of a file: what any reader of the format must make of them.
type vector struct {
	About     string         `json:"about"`
	Form      string         `json:"form"`            // segment or index
	Error     string         `json:"error,omitempty"` // the rule that the header (of an index: anything) breaks; then nothing else is said
	Header    map[string]any `json:"header,omitempty"`
	Batches   []placed       `json:"batches,omitempty"`   // the sound run
	Unwritten int64          `json:"unwritten,omitempty"` // zeros behind the run, to the end of the file
	Damage    *placed        `json:"damage,omitempty"`    // where the run ends before the file does
	Beyond    []placed       `json:"beyond,omitempty"`    // sound batches behind the damage
	Entries   []placed       `json:"entries,omitempty"`
}

type placed struct {
	Position   int64  `json:"position"`
	Sequence   uint64 `json:"sequence"`
	Offset     uint64 `json:"offset"`
	AppendTime int64  `json:"append_time,omitempty"`
	Flushed    uint64 `json:"flushed,omitempty"`
}

func rules() map[error]string {
	return map[error]string{
		segment.ErrShort: "short", segment.ErrMagic: "magic", segment.ErrChecksum: "checksum", segment.ErrNewer: "newer", segment.ErrIndex: "index",
	}
}

func ruleOf(t *testing.T, err error) string {
	t.Helper()
	for sentinel, name := range rules() {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	t.Fatalf("no name for %v", err)
	return ""
}

func meaning(t *testing.T, about, form string, raw []byte) vector {
	t.Helper()
	if form == "index" {
		return indexMeaning(t, about, raw)
	}
	v := vector{About: about, Form: form}
	place := func(to *[]placed) func(batch.Batch, int64) error {
		return func(b batch.Batch, pos int64) error {
			*to = append(*to, placed{Position: pos, Sequence: b.Sequence(), Offset: b.BaseOffset(), AppendTime: b.AppendTime(), Flushed: b.Flushed()})
			return nil
		}
	}
	h, err := segment.ParseHeader(raw)
	if err != nil {
		v.Error = ruleOf(t, err)
		return v
	}
	v.Header = map[string]any{"log": h.ID.String(), "shard": h.Shard, "base": h.Base}
	s, err := segment.Read(bytes.NewReader(raw), int64(len(raw)), segment.Options{Base: h.Base, Visit: place(&v.Batches), Beyond: place(&v.Beyond)})
	if err != nil {
		t.Fatal(err)
	}
	v.Unwritten = s.Unwritten
	if s.Damage != nil {
		v.Damage = &placed{Position: s.Damage.Position, Sequence: s.Damage.Sequence, Offset: s.Damage.Offset}
	}
	return v
}

func indexMeaning(t *testing.T, about string, raw []byte) vector {
	t.Helper()
	x, err := segment.ParseIndex(raw)
	if err != nil {
		return vector{About: about, Form: "index", Error: ruleOf(t, err)}
	}
	s := x.Summary
	v := vector{About: about, Form: "index", Header: map[string]any{
		"log": x.ID.String(), "shard": x.Shard, "base": s.Base, "base_offset": s.BaseOffset, "size": s.Size, "generation": s.Generation,
		"last": s.Next - 1, "next_offset": s.NextOffset, "last_time": s.LastTime, "first_time": s.FirstTime,
	}}
	for _, e := range x.Entries {
		v.Entries = append(v.Entries, placed{Position: e.Position, Sequence: e.Sequence, Offset: e.Offset, AppendTime: e.AppendTime})
	}
	return v
}

type vectorCase struct {
	name, about, form string
	raw               []byte
}

func vectorCases(t *testing.T) []vectorCase {
	bs := batches(t, 3)
	whole := file(bs)
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	resum := func(b []byte, end int) []byte {
		binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	s := scan(t, whole)
	index := (&segment.Index{ID: logID, Shard: 2, Summary: s.Summary, Entries: s.Sparse.Sealed()}).Append(nil)
	third := segment.HeaderSize + len(bs[0]) + len(bs[1])
	return []vectorCase{
		{"empty", "a segment that was just begun", "segment", whole[:segment.HeaderSize]},
		{"sound", "a checkpoint of two parts and three batches of records", "segment", whole},
		{"torn", "the last batch lost its last bytes", "segment", whole[:len(whole)-7]},
		{"zeros", "zeros behind the last batch: room for batches that never came", "segment", append(bytes.Clone(whole), make([]byte, 64)...)},
		{"damaged", "a bit of the third batch is flipped; a later one says that it had been flushed", "segment", change(whole, third+120, whole[third+120]^4)},
		{"refused_short", "shorter than a header", "segment", whole[:40]},
		{"refused_magic", "not a segment", "segment", change(whole[:60], 0, 'X')},
		{"refused_checksum", "a header with a flipped bit", "segment", change(whole[:60], 33, 9)},
		{"refused_version", "version 2 under a good checksum", "segment", resum(change(whole[:60], 8, 2), 44)},
		{"refused_flag", "an unknown flag under a good checksum", "segment", resum(change(whole[:60], 10, 1), 44)},
		{"index", "the index of the sound segment", "index", index},
		{"index_refused_short", "shorter than a header", "index", index[:100]},
		{"index_refused_magic", "not an index", "index", change(index, 7, 'S')},
		{"index_refused_checksum", "a header with a flipped bit", "index", change(index, 50, index[50]^1)},
		{"index_refused_entry", "an entry with a flipped bit", "index", change(index, len(index)-1, 1)},
		{"index_refused_version", "version 2 under a good checksum", "index", resum(change(index, 8, 2), 108)},
		{"index_refused_count", "more entries than there are", "index", resum(change(index, 96, 9), 108)},
	}
}

// lines breaks digits into lines of 32 bytes.
func lines(digits string) string {
	var out strings.Builder
	for ; len(digits) > 64; digits = digits[64:] {
		out.WriteString(digits[:64] + "\n")
	}
	return out.String() + digits + "\n"
}

func TestVectors(t *testing.T) {
	names := map[string]bool{}
	for _, c := range vectorCases(t) {
		names[c.name] = true
		path := filepath.Join(vectorDir, c.name)
		got, err := json.MarshalIndent(meaning(t, c.about, c.form, c.raw), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		raw := []byte(lines(hex.EncodeToString(c.raw)))
		if *update {
			if err := errors.Join(os.MkdirAll(vectorDir, 0o755), os.WriteFile(path+".hex", raw, 0o644), os.WriteFile(path+".json", got, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		for suffix, now := range map[string][]byte{".hex": raw, ".json": got} {
			frozen, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(frozen, now) {
				t.Errorf("%s%s: is %s, frozen as %s", c.name, suffix, now, frozen)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(vectorDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)); !names[name] {
			t.Errorf("%s belongs to no vector of this test", f)
		}
	}
}
