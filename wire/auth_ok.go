// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// AuthOk answers Auth.
type AuthOk struct {
	// Expires is when the token ends, in Unix microseconds; the connection ends with it unless a newer
	// token was accepted.
	Expires int64
	Subject string
}

// Type returns TypeAuthOk.
func (*AuthOk) Type() Type { return TypeAuthOk }

// Size returns the size of the body.
func (f *AuthOk) Size() int { return 8 + stringSize(f.Subject) }

// Append appends the body.
func (f *AuthOk) Append(dst []byte) []byte {
	return appendString(binary.LittleEndian.AppendUint64(dst, uint64(f.Expires)), f.Subject)
}

// Parse reads the body.
func (f *AuthOk) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeAuthOk}
	f.Expires = int64(c.u64())
	f.Subject = c.string()
	return c.done()
}
