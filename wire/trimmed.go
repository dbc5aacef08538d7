// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Trimmed answers Trim.
type Trimmed struct {
	// Earliest is the offset of the first record that can still be read: what was asked for, or what it was already when
	// that is higher. Space is given back in whole segments all the same.
	Earliest uint64
}

// Type returns TypeTrimmed.
func (*Trimmed) Type() Type { return TypeTrimmed }

// Size returns the size of the body.
func (*Trimmed) Size() int { return 8 }

// Append appends the body.
func (f *Trimmed) Append(dst []byte) []byte { return binary.LittleEndian.AppendUint64(dst, f.Earliest) }

// Parse reads the body.
func (f *Trimmed) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeTrimmed}
	f.Earliest = c.u64()
	return c.done()
}
