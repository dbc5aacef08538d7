// SPDX-License-Identifier: Apache-2.0

package wire

import "margay.dev/wire/batch"

// CursorList asks for the durable subscriptions of a log in the shards that the broker leads. Answered by Cursors.
type CursorList struct {
	Log batch.LogID
}

// Type returns TypeCursorList.
func (*CursorList) Type() Type { return TypeCursorList }

// Size returns the size of the body.
func (*CursorList) Size() int { return 16 }

// Append appends the body.
func (f *CursorList) Append(dst []byte) []byte { return append(dst, f.Log[:]...) }

// Parse reads the body.
func (f *CursorList) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCursorList}
	f.Log = c.logID()
	return c.done()
}
