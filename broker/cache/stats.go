// SPDX-License-Identifier: Apache-2.0

package cache

import "sync/atomic"

// Stats counts what any number of watchers do.
type Stats struct {
	Watches   atomic.Int64  // that stand
	Feeds     atomic.Int64  // that run
	Entries   atomic.Uint64 // sent before what comes live
	Snapshots atomic.Uint64 // begun
	Histories atomic.Uint64 // begun
	Resets    atomic.Uint64 // of snapshots: the offset asked for was gone
}
