// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/storage/vfs"
	"margay.dev/wire/control"
)

// RT-03, RT-04, RT-05, RT-06: a cache on a disk that fills up again and again, also while the node starts: what is put then
// is refused, what is there is read, writing goes on by itself once there is room, reclaim too, and nothing is left behind;
// at rest the files stay as many as they are.
func TestCacheOnAFullDisk(t *testing.T) {
	Run(t, 3, func(t *testing.T, b *Bubble) {
		n := b.Start()
		spec := control.CacheSpec{Name: "c", SegmentBytes: new(int64(8 << 10))}
		if _, err := n.API().CreateCache(t.Context(), control.DefaultTenant, control.DefaultNamespace, spec); err != nil {
			t.Fatal(err)
		}
		c := n.Connect()
		k := c.Cache("c")
		want := map[string]uint64{}
		put := func(key string) {
			t.Helper()
			v, err := k.Put(t.Context(), key, make([]byte, 200))
			if err != nil {
				t.Fatalf("put %s: %v", key, err)
			}
			want[key] = v
		}
		look := func(when string) {
			t.Helper()
			for key, version := range want {
				if e, err := k.Get(t.Context(), key); err != nil || e.Version != version {
					t.Errorf("%s: %s has version %d, want %d: %v", when, key, e.Version, version, err)
				}
			}
		}
		for i := range 50 {
			put(fmt.Sprint("stays/", i))
		}
		for cycle := range 6 {
			n.Disk().SetCapacity(4 << 10)
			eventually(t, "the disk to count as full", func() bool {
				_, err := c.Publisher("c", client.WithDeliveryTimeout(time.Second)).Publish(t.Context(), client.Record{Key: []byte("probe"), Value: []byte("x")})
				return errors.Is(err, client.ErrStorageFull)
			})
			look("on a full disk")
			if cycle%2 == 1 {
				n.PowerCut(nil)
				n.Boot()
				look("started on a full disk")
			}
			n.Disk().SetCapacity(0)
			for i := range 120 {
				put(fmt.Sprint("often/", i%4))
			}
			look("with room again")
		}
		var before uint64
		eventually(t, "the log to be reclaimed", func() bool {
			o, err := c.Offsets(t.Context(), "c")
			before = o[0].Earliest
			return err == nil && before > 200
		})
		time.Sleep(30 * time.Second) // the last reclaim ends
		files := list(t, n.Disk(), n.cfg.Dir+"/shards")
		time.Sleep(time.Minute)
		if now := list(t, n.Disk(), n.cfg.Dir+"/shards"); len(now) != len(files) {
			t.Errorf("a quiet minute made %d files of %d: %v", len(now), len(files), now)
		}
		for _, name := range files {
			if strings.HasSuffix(name, vfs.TempSuffix) {
				t.Errorf("%s is left", name)
			}
		}
		look("in the end")
	})
}

// list names the files below a directory.
func list(t *testing.T, fs vfs.FS, dir string) (files []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		return []string{dir}
	}
	for _, name := range names {
		files = append(files, list(t, fs, dir+"/"+name)...)
	}
	return files
}
