// SPDX-License-Identifier: Apache-2.0

package wire

import "margay.dev/wire/batch"

// CursorDelete asks to forget a durable subscription in the shards that the broker leads; a holder is ended. Answered by
// Done.
type CursorDelete struct {
	Log  batch.LogID
	Name string
}

// Type returns TypeCursorDelete.
func (*CursorDelete) Type() Type { return TypeCursorDelete }

// Size returns the size of the body.
func (f *CursorDelete) Size() int { return 16 + stringSize(f.Name) }

// Append appends the body.
func (f *CursorDelete) Append(dst []byte) []byte {
	return appendString(append(dst, f.Log[:]...), f.Name)
}

// Parse reads the body.
func (f *CursorDelete) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCursorDelete}
	f.Log = c.logID()
	f.Name = c.name()
	return c.done()
}
