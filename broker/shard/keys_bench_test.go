// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
)

// BenchmarkPublishKeyed is what a record with a key costs the core: of a log that nobody reads by key, and of one that
// knows its keys.
func BenchmarkPublishKeyed(b *testing.B) {
	for _, newest := range []bool{false, true} {
		b.Run(fmt.Sprintf("newest=%v", newest), func(b *testing.B) {
			c := shard.New(shard.Config{Node: "n1", Generation: 1, KeepNewest: newest})
			var eff shard.Effects
			c.Step(1, shard.Time{}, &eff)
			const each, keys = 64, 100_000
			bl := batch.NewBuilder(batch.Limits{})
			now, length := int64(1), uint64(0)
			b.ReportAllocs()
			for n := 0; n < b.N; n += each {
				b.StopTimer()
				bl.Reset()
				for i := range each {
					k := (n + i) * 7919 % keys
					if err := bl.Add(batch.Record{Key: fmt.Appendf(nil, "key/%028d", k), Value: make([]byte, 128), Timestamp: 1}); err != nil {
						b.Fatal(err)
					}
				}
				x, err := bl.Build(0, 0, batch.None)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				now++
				c.Step(now, &shard.Publish{Batch: x}, &eff)
				length += uint64(len(eff.Append))
				c.Step(now, shard.Flushed{Length: length}, &eff)
				eff.Reset()
			}
		})
	}
}
