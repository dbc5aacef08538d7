// SPDX-License-Identifier: Apache-2.0

package batch

// BuildExpired returns an unassigned batch of tombstones that a leader writes for keys whose time to live ended. They take
// offsets as any record does, and the batch says why they are there. A batch without keys or above MaxBatch is refused by
// every check.
func BuildExpired(keys [][]byte, at int64) Batch {
	meta := make([]byte, 0, len(keys)*32)
	for _, k := range keys {
		// Written here and not by appendMeta: a nil key is an empty one, for a tombstone without a key ends nothing.
		meta = appendVarint(append(meta, flagKey|flagNull), 0)
		meta = append(appendUvarint(meta, uint64(len(k))), k...)
	}
	out := lay(nil, nil, meta, nil)
	out.seal(produced{attributes: AttrExpired, count: len(keys), firstTime: at, metaSize: len(meta)})
	return out
}
