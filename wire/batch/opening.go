// SPDX-License-Identifier: Apache-2.0

package batch

// Opening is the first entry a leader writes in its generation. Lossy says that the shard was opened by a replica
// that may lack committed batches: LossySequence and LossyOffset are where its history continues.
type Opening struct {
	Generation    uint64
	Leader        string   // node
	Replicas      []string // nodes, the leader among them
	Lossy         bool
	LossySequence uint64 // 0 unless Lossy
	LossyOffset   uint64 // 0 unless Lossy
}

// Type returns TypeOpening.
func (Opening) Type() EntryType { return TypeOpening }

// AppendTo appends the entry's bytes.
func (e Opening) AppendTo(dst []byte) []byte {
	dst = appendUvarint(dst, e.Generation)
	dst = appendString(dst, e.Leader)
	dst = appendUvarint(dst, uint64(len(e.Replicas)))
	for _, r := range e.Replicas {
		dst = appendString(dst, r)
	}
	if !e.Lossy {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = appendUvarint(dst, e.LossySequence)
	return appendUvarint(dst, e.LossyOffset)
}

func parseOpening(c *cursor) Opening {
	e := Opening{Generation: c.uvarint(), Leader: c.str()}
	for n := c.length(); n > 0 && c.err == nil; n-- {
		e.Replicas = append(e.Replicas, c.str())
	}
	if e.Lossy = c.bool(); e.Lossy {
		e.LossySequence = c.uvarint()
		e.LossyOffset = c.uvarint()
	}
	return e
}
