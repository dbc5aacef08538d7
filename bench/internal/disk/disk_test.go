// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"testing"
	"time"
)

func TestWhatIsCountedIsInTheFiles(t *testing.T) {
	for name, run := range map[string]func(dir string) (Measured, error){
		"flushed": func(dir string) (Measured, error) {
			return Flushed(t.Context(), dir, 3, 4096, false, 20*time.Millisecond)
		},
		"flushed into zeros": func(dir string) (Measured, error) {
			return Flushed(t.Context(), dir, 2, 5000, true, 20*time.Millisecond)
		},
		"sequential": func(dir string) (Measured, error) {
			return Sequential(t.Context(), dir, 64<<10, 20*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m, err := run(dir)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var size int64
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			if m.Appends == 0 || size != m.Bytes {
				t.Errorf("%d appends of %d bytes, the files have %d", m.Appends, m.Bytes, size)
			}
		})
	}
}
