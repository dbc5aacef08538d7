// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"fmt"

	"margay.dev/wire/batch"
)

// Each calls f with what a batch says of each key in it, in order: the entry that its record makes. A tombstone's meta is
// Null; of its entry only the offset and the sequence count.
func Each(b batch.Batch, f func(m *batch.Meta, e Entry)) error {
	plain, err := plainSize(b)
	if err != nil {
		return fmt.Errorf("keys of batch %d: %w", b.Sequence(), err)
	}
	return each(b, plain, f)
}

func each(b batch.Batch, plain int, f func(m *batch.Meta, e Entry)) error {
	metas := b.Metas()
	carried := b.IsCarried()
	var m batch.Meta
	for {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			return err
		}
		if m.Key != nil {
			f(&m, Entry{
				Offset:   metas.Offset(), // of a carried record the one it was given first, and so with the time
				Sequence: b.Sequence(),
				Until:    until(metas.AppendTime(), m.TTL),
				Size:     share(b, &m, plain),
				Carried:  carried,
			})
		}
	}
}
