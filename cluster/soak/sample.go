// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"path/filepath"
	"time"
)

// sample is what the node holds at one moment, and what was done up to it.
type sample struct {
	at time.Duration

	rss, heap, goroutines, descriptors float64
	connections, subscriptions         float64
	inflight, queued                   float64 // bytes of publishes, and of what waits for subscribers
	bulk, disk                         int64   // bytes of the bulk stream, and of all

	published    int64
	acked, read  uint64
	lost, unseen uint64
	open         int // records that the checker holds
	violations   uint64
}

// sample asks the node, which is up, and looks at its files.
func (r *soak) sample(at time.Duration) sample {
	m, err := r.process.Metrics()
	if err != nil {
		r.harness.Fatalf("the node's metrics: %v", err)
	}
	c := r.ledger.Counts()
	s := sample{
		at: at, rss: m["process_resident_memory_bytes"], heap: m["go_memstats_heap_inuse_bytes"], goroutines: m["go_goroutines"],
		descriptors: m["process_open_fds"], connections: m["margay_connections"], subscriptions: m["margay_subscriptions"],
		inflight: m["margay_inflight_bytes"], queued: m["margay_subscription_queue_bytes"],
		published: r.published.Load(), acked: c.Acked, read: c.Audited + c.Read, lost: c.Lost, unseen: c.Unseen,
		open: r.ledger.Open(), violations: c.Violations + uint64(len(r.harness.seen())),
	}
	s.disk = bytesBelow(r.process.Data())
	s.bulk = bytesBelow(filepath.Join(r.process.Data(), "shards", r.bulkID))
	return s
}

// bytesBelow is the size of all files below a directory, as far as they are there while it looks.
func bytesBelow(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // retention removes files meanwhile
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}
