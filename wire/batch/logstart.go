// SPDX-License-Identifier: Apache-2.0

package batch

// LogStart moves the start of the log: everything below it may be dropped once this batch is committed.
type LogStart struct {
	Sequence uint64
	Offset   uint64
}

// Type returns TypeLogStart.
func (LogStart) Type() EntryType { return TypeLogStart }

// AppendTo appends the entry's bytes.
func (e LogStart) AppendTo(dst []byte) []byte {
	return appendUvarint(appendUvarint(dst, e.Sequence), e.Offset)
}

func parseLogStart(c *cursor) LogStart {
	return LogStart{Sequence: c.uvarint(), Offset: c.uvarint()}
}
