// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Hello is the client's first frame on the control lane.
type Hello struct {
	VersionMin, VersionMax uint16
	Features               Features
	// Client names the library and its version, for logs and for the list of connections.
	Client string
}

// Type returns TypeHello.
func (*Hello) Type() Type { return TypeHello }

// Size returns the size of the body.
func (f *Hello) Size() int { return 12 + stringSize(f.Client) }

// Append appends the body.
func (f *Hello) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, f.VersionMin)
	dst = binary.LittleEndian.AppendUint16(dst, f.VersionMax)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.Features))
	return appendString(dst, f.Client)
}

// Parse reads the body.
func (f *Hello) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeHello}
	f.VersionMin = c.u16()
	f.VersionMax = c.u16()
	f.Features = Features(c.u64())
	f.Client = c.string()
	if f.VersionMin > f.VersionMax {
		c.fail(ErrValue)
	}
	return c.done()
}
