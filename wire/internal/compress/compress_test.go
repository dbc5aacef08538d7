// SPDX-License-Identifier: Apache-2.0

package compress_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"margay.dev/wire/internal/compress"
)

func pack(t *testing.T, src []byte) []byte {
	t.Helper()
	out, ok := compress.Zstd(nil, src)
	if !ok {
		t.Fatal("no encoder")
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, 100, 128 << 10, 8<<20 - 96} {
		src := bytes.Repeat([]byte("margay"), size/6+1)[:size]
		out, err := compress.Unzstd(pack(t, src), size)
		if err != nil || !bytes.Equal(out, src) || out == nil {
			t.Errorf("%d bytes came back as %d, %v", size, len(out), err)
		}
	}
}

func TestDeclaredSizeIsExact(t *testing.T) {
	packed := pack(t, make([]byte, 4<<20))
	for _, size := range []int{0, 1, 1000, 4<<20 - 1, 4<<20 + 1} {
		if _, err := compress.Unzstd(packed, size); err == nil {
			t.Errorf("4 MiB passed for %d bytes", size)
		}
	}
	if _, err := compress.Unzstd(packed, 5<<20); !errors.Is(err, compress.ErrSize) {
		t.Errorf("got %v", err)
	}
	for _, bad := range [][]byte{nil, {1, 2, 3}, packed[:len(packed)-1], append(bytes.Clone(packed), 0)} {
		if _, err := compress.Unzstd(bad, 4<<20); err == nil {
			t.Errorf("%d damaged bytes passed", len(bad))
		}
	}
}

// TestCodersAreShared runs many users at once: the race detector says whether a coder ever serves two of them.
func TestCodersAreShared(t *testing.T) {
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			src := bytes.Repeat([]byte{byte(i), 1, 2}, 10_000)
			for range 20 {
				packed, _ := compress.Zstd(nil, src)
				if out, err := compress.Unzstd(packed, len(src)); err != nil || !bytes.Equal(out, src) {
					t.Errorf("user %d got another's bytes, %v", i, err)
				}
			}
		})
	}
	users.Wait()
}
