// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"testing"
	"time"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

const million = 1_000_000

// someKeys are keys of 32 bytes that share their beginning, as most do.
func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant/device/%018d", i)
	}
	return keys
}

func filled(keys []string, ttl bool) *Index {
	x := New()
	for i, k := range keys {
		e := Entry{Offset: uint64(i), Sequence: uint64(i), Size: 200}
		if ttl {
			e.Until = int64(i) + 1
		}
		x.Set(k, e)
	}
	return x
}

func shuffled(keys []string) []string {
	out := append([]string(nil), keys...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkGet(b *testing.B) {
	keys := shuffled(someKeys(million))
	x := filled(keys, false)
	asked := make([][]byte, million)
	for i, k := range shuffled(keys) {
		asked[i] = []byte(k)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := x.Get(asked[i%million]); !ok {
			b.Fatal(i)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	for _, ttl := range []bool{false, true} {
		b.Run(fmt.Sprintf("there/ttl=%v", ttl), func(b *testing.B) {
			keys := shuffled(someKeys(million))
			x := filled(keys, ttl)
			keys = shuffled(keys)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e := Entry{Offset: million + uint64(i)}
				if ttl {
					e.Until = million + int64(i)
				}
				x.Set(keys[i%million], e)
			}
		})
		b.Run(fmt.Sprintf("new/ttl=%v", ttl), func(b *testing.B) {
			keys := shuffled(someKeys(million))
			for b.Loop() {
				filled(keys, ttl)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/key")
		})
	}
}

func BenchmarkMemory(b *testing.B) {
	for _, ttl := range []bool{false, true} {
		for _, order := range []string{"random", "rising"} {
			b.Run(fmt.Sprintf("ttl=%v/%s", ttl, order), func(b *testing.B) {
				keys := someKeys(million)
				if order == "random" {
					keys = shuffled(keys)
				}
				for b.Loop() {
					before := heap()
					x := filled(keys, ttl)
					b.ReportMetric(float64(heap()-before)/million, "B/key")
					runtime.KeepAlive(x)
				}
			})
		}
	}
}

// BenchmarkApply lays a million records over an empty index, 1000 in a batch.
func BenchmarkApply(b *testing.B) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		b.Run(fmt.Sprintf("ttl=%v", ttl), func(b *testing.B) {
			keys := shuffled(someKeys(million))
			var bs []batch.Batch
			for i := 0; i < million; i += 1000 {
				recs := make([]batch.Record, 1000)
				for j := range recs {
					recs[j] = batch.Record{Key: []byte(keys[i+j]), Value: binary.LittleEndian.AppendUint64(nil, uint64(j)), TTL: ttl}
				}
				bs = append(bs, build(b, batch.Assigned{Sequence: uint64(i / 1000), BaseOffset: uint64(i), AppendTime: int64(i)}, recs...))
			}
			for b.Loop() {
				mustApply(b, New(), bs...)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, ttl := range []bool{false, true} {
		x := filled(shuffled(someKeys(million)), ttl)
		x.SetAsOf(million, million)
		fsys := vfs.OS()
		at := b.TempDir()
		first := x.Snapshot()
		if err := Save(fsys, at, metaOf(first), first); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("save/ttl=%v", ttl), func(b *testing.B) {
			for b.Loop() {
				s := x.Snapshot()
				if err := Save(fsys, at, metaOf(s), s); err != nil {
					b.Fatal(err)
				}
			}
			info, err := fsys.Stat(path.Join(at, FileName))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size)/million, "B/key")
		})
		b.Run(fmt.Sprintf("load/ttl=%v", ttl), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Load(fsys, at, logID, 3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
