// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// DeriveOp says how the leader makes a record.
type DeriveOp uint8

// The operations. Each works on the newest value of the record's key, as it is when the batch is appended.
const (
	OpAdd   DeriveOp = 1 // the record's value is a decimal number to add to that of the key
	OpTouch DeriveOp = 2 // the record, a tombstone as sent, gets the key's value and keeps its own time to live
)

// Derive names a record that the leader makes: what is stored is a batch of the leader's with the producer's id and
// sequence, so that a batch sent again counts once.
type Derive struct {
	// Record is the index of the record in the batch.
	Record uint32
	Op     DeriveOp
}

const deriveSize = 4 + 1

func appendDerives(dst []byte, derives []Derive) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(derives)))
	for _, x := range derives {
		dst = append(binary.LittleEndian.AppendUint32(dst, x.Record), byte(x.Op))
	}
	return dst
}

// derives reads at least one, of rising records: one set of them has one encoding.
func (c *cursor) derives(into []Derive) []Derive {
	n := c.count(deriveSize)
	if n == 0 {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		x := Derive{Record: c.u32(), Op: DeriveOp(c.enum(uint8(OpTouch)))}
		if last := len(into) - 1; x.Op == 0 || last >= 0 && x.Record <= into[last].Record {
			c.fail(ErrValue)
		}
		into = append(into, x)
	}
	return into
}
