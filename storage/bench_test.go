// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"path"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

func BenchmarkAppend(b *testing.B) {
	for name, run := range map[string]int{"one": 1, "sixteen": 16} {
		b.Run(name, func(b *testing.B) {
			o := storage.Options{FS: vfs.OS(), Dir: path.Join(b.TempDir(), "log"), ID: logID}
			d, err := storage.Create(o)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			l := &leader{t: b, log: d, gen: 1}
			l.must(l.checkpoint(1)...)
			batches := make([]batch.Batch, run)
			for i := range batches {
				batches[i] = records(b, 30, 128)
			}
			b.SetBytes(int64(run * len(batches[0])))
			b.ReportAllocs()
			for b.Loop() {
				l.must(l.assign(batches...)...)
			}
		})
	}
}

func BenchmarkReadForward(b *testing.B) {
	o := storage.Options{FS: vfs.OS(), Dir: path.Join(b.TempDir(), "log"), ID: logID}
	d, err := storage.Create(o)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	l := &leader{t: b, log: d, gen: 1}
	for range 4 {
		l.must(l.checkpoint(1)...)
		for range 2000 {
			l.must(l.assign(records(b, 30, 128))...)
		}
	}
	length := d.State().Length
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		if seq == length {
			seq = 0
		}
		p, err := d.Read(seq, length, 256<<10)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(p)))
		for len(p) > 0 {
			p = p[batch.Batch(p).Size():]
			seq++
		}
	}
}
