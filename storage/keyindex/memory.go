// SPDX-License-Identifier: Apache-2.0

package keyindex

// Bytes is the memory that the index takes.
func (x *Index) Bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.keyBytes + int64(len(x.items))*120
}
