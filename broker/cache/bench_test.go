// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"margay.dev/broker/cache"
	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// keysOf stores keys k000000 and so on, so many records in a batch, on a real disk.
func keysOf(b *testing.B, keys, perBatch, size int) *host.Shard {
	b.Helper()
	l := hosttest.Log(func(l *control.Log) { l.Fsync = control.FsyncNever })
	r := hosttest.StartIn(b, vfs.OS(), b.TempDir(), hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	var corr uint64
	for at := 0; at < keys; at += perBatch {
		var recs []batch.Record
		for i := range perBatch {
			recs = append(recs, batch.Record{Key: fmt.Appendf(nil, "k%06d", at+i), Value: make([]byte, size), Timestamp: 1})
		}
		if err := s.Submit(hosttest.RequestOf(b, a, corr, recs...)); err != nil {
			b.Fatal(err)
		}
		if corr++; corr%256 == 0 {
			hosttest.Eventually(b, "answers", func() bool { return a.N.Load() == int64(corr) })
		}
	}
	hosttest.Eventually(b, "answers", func() bool { return a.N.Load() == int64(corr) })
	if len(a.Errs) > 0 {
		b.Fatal(a.Errs)
	}
	hosttest.Eventually(b, "the key index", func() bool {
		_, err := s.Keys(b.Context())
		return err == nil
	})
	return s
}

func BenchmarkGet(b *testing.B) {
	for _, c := range []struct{ keys, perBatch, size int }{{100_000, 1, 128}, {100_000, 100, 128}, {100_000, 1000, 128}, {1_000, 1, 128}} {
		b.Run(fmt.Sprintf("keys=%d/batch=%d/size=%d", c.keys, c.perBatch, c.size), func(b *testing.B) {
			s := keysOf(b, c.keys, c.perBatch, c.size)
			g := &cache.Getter{}
			f := &wire.Get{Keys: make([][]byte, 1)}
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				f.Keys[0] = fmt.Appendf(f.Keys[0][:0], "k%06d", rng.IntN(c.keys))
				got, err := g.Get(b.Context(), s, f)
				if err != nil || got.Entries[0].Kind != wire.EntryValue {
					b.Fatal(err, got)
				}
			}
		})
	}
}
