// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Unwatch ends a watch of the lane. Answered by WatchEnd.
type Unwatch struct {
	ID uint64
}

// Type returns TypeUnwatch.
func (*Unwatch) Type() Type { return TypeUnwatch }

// Size returns the size of the body.
func (*Unwatch) Size() int { return 8 }

// Append appends the body.
func (f *Unwatch) Append(dst []byte) []byte { return binary.LittleEndian.AppendUint64(dst, f.ID) }

// Parse reads the body.
func (f *Unwatch) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeUnwatch}
	f.ID = c.id()
	return c.done()
}
