// SPDX-License-Identifier: Apache-2.0

package batch

// DeadReason says why a message is a dead letter.
type DeadReason uint8

// The reasons.
const (
	DeadAttempts DeadReason = 1 // as many attempts ended as the group allows
	DeadRejected DeadReason = 2 // a consumer rejected it
	DeadExpired  DeadReason = 3 // its time to live ended, and the group keeps such
)

// DeadRemoved says what became of a dead letter.
type DeadRemoved uint8

// What became of it.
const (
	DeadKept      DeadRemoved = 0 // nothing: it is one
	DeadRedriven  DeadRemoved = 1
	DeadDiscarded DeadRemoved = 2
	DeadLost      DeadRemoved = 3 // the record is no more in the log
)

// Dead says that a message is a dead letter of a group, or no longer. The newest entry of a group and offset holds.
type Dead struct {
	Group, Offset uint64
	Removed       DeadRemoved
	Attempts      uint32
	Reason        DeadReason // 0 only of one that is removed
	At            int64      // Unix microseconds: when it became one, or was removed
	AppendTime    int64      // of the record
	Key           uint64     // hash of the record's key; 0 = it has none
	Priority      uint8      // of the record
	Error         string     // why the last attempt ended
}

// Type returns TypeDead.
func (Dead) Type() EntryType { return TypeDead }

// AppendTo appends the entry's bytes.
func (e Dead) AppendTo(dst []byte) []byte {
	dst = appendUvarint(le.AppendUint64(dst, e.Group), e.Offset)
	dst = appendUvarint(append(dst, byte(e.Removed)), uint64(e.Attempts))
	dst = appendVarint(append(dst, byte(e.Reason)), e.At)
	dst = appendVarint(dst, e.AppendTime)
	dst = append(le.AppendUint64(dst, e.Key), min(e.Priority, MaxPriority))
	return appendString(dst, cut(e.Error, MaxGroupReason))
}

func parseDead(c *cursor) Dead {
	e := Dead{Group: c.u64(), Offset: c.uvarint(), Removed: DeadRemoved(c.upTo(byte(DeadLost))), Attempts: c.u32()}
	e.Reason = DeadReason(c.upTo(byte(DeadExpired)))
	if e.Reason == 0 && e.Removed == DeadKept {
		c.fail(ErrEntry)
	}
	e.At, e.AppendTime, e.Key = c.varint(), c.varint(), c.u64()
	e.Priority, e.Error = c.upTo(MaxPriority), c.most(MaxGroupReason)
	return e
}

// Command says that a command was carried out, so that it is not when it comes again.
type Command struct {
	ID    [16]byte // random, the client's
	At    int64    // Unix microseconds
	Group uint64   // that it was about; 0 = more than one
	Count uint64   // messages that it was about
}

// Type returns TypeCommand.
func (Command) Type() EntryType { return TypeCommand }

// AppendTo appends the entry's bytes.
func (e Command) AppendTo(dst []byte) []byte {
	dst = appendVarint(append(dst, e.ID[:]...), e.At)
	return appendUvarint(le.AppendUint64(dst, e.Group), e.Count)
}

func parseCommand(c *cursor) (e Command) {
	copy(e.ID[:], c.bytes(len(e.ID)))
	e.At, e.Group, e.Count = c.varint(), c.u64(), c.uvarint()
	return e
}
