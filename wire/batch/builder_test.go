// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"testing"

	"margay.dev/wire/batch"
)

// A batch that is built into memory used before is the same as one in fresh memory.
func TestBuildTo(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{})
	buf := bytes.Repeat([]byte{0xff}, 300)
	for n := range 5 { // the last ones are larger than what there is
		b.Reset()
		for i := range 1 + 3*n {
			if err := b.Add(batch.Record{Key: []byte{byte(i)}, Value: bytes.Repeat([]byte{byte(n)}, 40), Timestamp: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		want, err := b.Build(7, uint64(n+1), batch.None)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.BuildTo(buf, 7, uint64(n+1), batch.None)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("batch %d: %x, %v, want %x", n, got, err, want)
		}
		if used := &got[0] == &buf[0]; used != (len(want) <= cap(buf)) {
			t.Errorf("batch %d of %d bytes: buffer of %d used: %v", n, len(want), cap(buf), used)
		}
		buf = got
	}
}
