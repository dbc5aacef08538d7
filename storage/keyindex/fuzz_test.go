// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"bytes"
	"io"
	"slices"
	"testing"
)

func FuzzRead(f *testing.F) {
	for _, c := range vectorCases() {
		f.Add(c.raw)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = resealed(data)
		x, m, err := Read(bytes.NewReader(data))
		if err != nil {
			if !useless(err) {
				t.Fatal(err)
			}
			return
		}
		s := x.Snapshot()
		defer s.Close()
		var out bytes.Buffer
		if err := s.Encode(&out, m); err != nil {
			t.Fatal(err)
		}
		y, again, err := Read(&out)
		if err != nil || again != m {
			t.Fatalf("what was read and written is not read: %v, %+v and %+v", err, again, m)
		}
		same(t, x, y)
	})
}

// resealed puts right the checksums of whatever looks like a snapshot, so that the fuzzer gets behind them.
func resealed(data []byte) []byte {
	data = bytes.Clone(data)
	var d decoder
	seal := func(from, to int) bool {
		if to < from || to+4 > len(data) {
			return false
		}
		var e encoder
		e.w, e.sum = io.Discard, d.sum
		e.write(bytes.Clone(data[from:to]))
		d.sum = e.sum
		le.PutUint32(data[to:], e.sum)
		return true
	}
	for at, ok := HeaderSize, seal(0, HeaderSize-4); ok && at+blockHead <= len(data); {
		end := at + blockHead + int(le.Uint32(data[at:]))
		ok = seal(at, end)
		at = end + 4
	}
	return data
}

func same(t *testing.T, x, y *Index) {
	t.Helper()
	all := func(x *Index) []pair {
		return collect(func(f func(string, Entry) bool) { x.Ascend("", "", false, f) })
	}
	if !slices.Equal(all(x), all(y)) || x.NextDue() != y.NextDue() || x.LiveBytes() != y.LiveBytes() {
		t.Fatal("the two indexes differ")
	}
}
