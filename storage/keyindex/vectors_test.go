// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The format is frozen: -update exists to add vectors. A vector that changes is a broken format.
var update = flag.Bool("update", false, "write the golden vectors")

const vectorDir = "../../wire/testdata/vectors/keyindex"

// vector is the JSON beside the bytes of a file: what any reader of the format must make of them.
type vector struct {
	About  string         `json:"about"`
	Error  string         `json:"error,omitempty"` // the rule that is broken; then nothing else is said
	Header map[string]any `json:"header,omitempty"`
	Keys   []vectorKey    `json:"keys,omitempty"`
}

type vectorKey struct {
	Key      string `json:"key"` // hexadecimal
	Offset   uint64 `json:"offset"`
	Sequence uint64 `json:"sequence"`
	Size     uint32 `json:"size"`
	Until    int64  `json:"until,omitempty"`
	Carried  bool   `json:"carried,omitempty"`
}

func meaning(t *testing.T, about string, raw []byte) vector {
	t.Helper()
	x, m, err := Read(bytes.NewReader(raw))
	if err != nil {
		for sentinel, name := range map[error]string{
			ErrShort: "short", ErrMagic: "magic", ErrChecksum: "checksum", ErrNewer: "newer", ErrContent: "content",
		} {
			if errors.Is(err, sentinel) {
				return vector{About: about, Error: name}
			}
		}
		t.Fatalf("no name for %v", err)
	}
	v := vector{About: about, Header: map[string]any{
		"log": m.Log.String(), "shard": m.Shard, "generation": m.Generation, "sequence": m.Sequence, "offset": m.Offset, "keys": x.Len(),
	}}
	x.Ascend("", "", false, func(k string, e Entry) bool {
		v.Keys = append(v.Keys, vectorKey{hex.EncodeToString([]byte(k)), e.Offset, e.Sequence, e.Size, e.Until, e.Carried})
		return true
	})
	return v
}

// written returns the file of these items, in blocks as they are given.
func written(m Meta, blocks ...[]*item) []byte {
	var out bytes.Buffer
	e := encoder{w: &out}
	keys := 0
	for _, b := range blocks {
		keys += len(b)
	}
	e.header(m, keys)
	for _, b := range blocks {
		for _, it := range b {
			e.entry(it)
		}
		e.flush()
	}
	return out.Bytes()
}

type vectorCase struct {
	name, about string
	raw         []byte
}

func vectorCases() []vectorCase {
	m := Meta{Log: logID, Shard: 2, Generation: 7, Sequence: 1000, Offset: 90_000}
	first := []*item{
		{"", Entry{Offset: 4, Sequence: 3, Size: 140}},
		{"user/17", Entry{Offset: 89_999, Sequence: 999, Size: 200}},
		{"user/17/name", Entry{Offset: 12, Sequence: 950, Size: 1 << 20, Carried: true}},
	}
	second := []*item{
		{"user/18", Entry{Offset: 70_000, Sequence: 128, Size: 99, Until: 1_790_000_000_000_000}},
		{"\xff\x00", Entry{Offset: 300, Sequence: 999, Until: 1, Carried: true}},
	}
	one := written(m, first)
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	resum := func(b []byte, at int, to byte) []byte { return resealed(change(b, at, to)) }
	entries := HeaderSize + blockHead
	padded := bytes.Clone(one[:len(one)-4]) // the varint of the last size, a byte too long
	padded[len(padded)-1] |= 0x80
	padded = append(padded, 0, 0, 0, 0, 0)
	padded[HeaderSize]++
	return []vectorCase{
		{"empty", "no keys", written(m)},
		{"one", "one block: the empty key, keys that share their beginning, a carried record", one},
		{"two", "two blocks, the second with keys that expire", written(m, first, second)},
		{"refused_short", "shorter than a header", one[:60]},
		{"refused_cut", "cut off within the block", one[:len(one)-6]},
		{"refused_missing", "the second block is missing", written(m, first, second)[:len(one)]},
		{"refused_behind", "a byte behind the last block", append(bytes.Clone(one), 0)},
		{"refused_magic", "not a key index", change(one, 0, 'X')},
		{"refused_header", "a header with a flipped bit", change(one, 41, 9)},
		{"refused_checksum", "an entry with a flipped bit", change(one, entries+4, 9)},
		{"refused_version", "version 2 under a good checksum", resum(one, 8, 2)},
		{"refused_flag", "an unknown flag under a good checksum", resum(one, 10, 1)},
		{"refused_reserved", "reserved bytes that are not 0", resum(one, 64, 1)},
		{"refused_entry_flag", "an unknown flag of an entry", resum(one, entries, 4)},
		{"refused_shared", "a key that shares more than the key before it has", resum(one, entries+1, 1)},
		{"refused_count", "more keys in a block than the header has", resum(one, HeaderSize+4, 4)},
		{"refused_block", "a block without entries", resum(one, HeaderSize+4, 0)},
		{"refused_order", "a key twice", written(m, first, first[2:])},
		{"refused_sequence", "a record that lies at the mark", written(m, []*item{{"k", Entry{Offset: 1, Sequence: 1000}}})},
		{"refused_offset", "a record whose offset is the mark", written(m, []*item{{"k", Entry{Offset: 90_000, Sequence: 1}}})},
		{"refused_until", "an entry that expires at 0", resum(written(m, []*item{{"k", Entry{Until: 1}}}), entries+7, 0)},
		{"refused_varint", "a varint that is longer than it need be", resealed(padded)},
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
	for _, c := range vectorCases() {
		names[c.name] = true
		v := meaning(t, c.about, c.raw)
		if refused := strings.HasPrefix(c.name, "refused_"); refused != (v.Error != "") {
			t.Fatalf("%s: read as %+v", c.name, v)
		}
		js, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(vectorDir, c.name)
		raw, js := []byte(lines(hex.EncodeToString(c.raw))), append(js, '\n')
		if *update {
			if err := errors.Join(os.MkdirAll(vectorDir, 0o755), os.WriteFile(path+".hex", raw, 0o644), os.WriteFile(path+".json", js, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		for suffix, now := range map[string][]byte{".hex": raw, ".json": js} {
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
