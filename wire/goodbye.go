// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/code"
)

// Goodbye tells the client on the control lane that its connection is being drained: open no more
// lanes on it, and connect elsewhere or later.
type Goodbye struct {
	Code    code.Code
	Message string
}

// Type returns TypeGoodbye.
func (*Goodbye) Type() Type { return TypeGoodbye }

// Size returns the size of the body.
func (f *Goodbye) Size() int { return 2 + stringSize(f.Message) }

// Append appends the body.
func (f *Goodbye) Append(dst []byte) []byte {
	return appendString(binary.LittleEndian.AppendUint16(dst, uint16(f.Code)), f.Message)
}

// Parse reads the body.
func (f *Goodbye) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGoodbye}
	f.Code = code.Code(c.u16())
	f.Message = c.string()
	return c.done()
}
