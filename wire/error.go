// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"time"

	"margay.dev/wire/code"
)

// Error is the terminal answer of any request that failed.
type Error struct {
	Code         code.Code
	Class        code.Class
	RetryAfterMs uint32
	Generation   uint64
	Address      string
	Message      string
	Details      code.Details
}

// maxMessage bounds the text of an error: a message is for a person to read.
const maxMessage = 1024

// NewError makes the frame for any error (see code.From). A message beyond 1 KiB is cut.
func NewError(err error) *Error {
	e := code.From(err)
	message := e.Message
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return &Error{
		Code: e.Code, Class: e.Class, RetryAfterMs: milliseconds(e.RetryAfter), Generation: e.Generation,
		Address: e.Address, Message: message, Details: e.Details,
	}
}

// Err returns what the frame says as a Go error.
func (f *Error) Err() *code.Error {
	return &code.Error{
		Code: f.Code, Class: f.Class, RetryAfter: time.Duration(f.RetryAfterMs) * time.Millisecond,
		Generation: f.Generation, Address: f.Address, Message: f.Message, Details: f.Details,
	}
}

// milliseconds rounds up, so that nobody comes back too early.
func milliseconds(d time.Duration) uint32 {
	ms := (max(d, 0) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(ms, 1<<32-1))
}

// Type returns TypeError.
func (*Error) Type() Type { return TypeError }

// Size returns the size of the body.
func (f *Error) Size() int {
	return 16 + stringSize(f.Address) + stringSize(f.Message) + 9*f.Details.Len()
}

// Append appends the body.
func (f *Error) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(f.Code))
	dst = append(dst, byte(f.Class))
	dst = binary.LittleEndian.AppendUint32(dst, f.RetryAfterMs)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = appendString(dst, f.Address)
	dst = appendString(dst, f.Message)
	dst = append(dst, byte(f.Details.Len()))
	for k := code.DetailEarliest; k <= code.LastDetail; k++ {
		if v, ok := f.Details.Get(k); ok {
			dst = binary.LittleEndian.AppendUint64(append(dst, byte(k)), v)
		}
	}
	return dst
}

// Parse reads the body. Details of a kind that this build does not know are passed over: they inform,
// nothing hangs on them. Their order is fixed, so that one error has one encoding.
func (f *Error) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeError}
	f.Code = code.Code(c.u16())
	f.Class = code.Class(c.u8())
	if f.Code == 0 || f.Class < code.ClassRefused || f.Class > code.ClassUnknown {
		c.fail(ErrValue)
	}
	f.RetryAfterMs = c.u32()
	f.Generation = c.u64()
	f.Address = c.string()
	f.Message = c.string()
	f.Details = code.Details{}
	last := code.Detail(0)
	for n := c.u8(); n > 0 && c.err == nil; n-- {
		k, v := code.Detail(c.u8()), c.u64()
		if k <= last || (k == code.DetailShard && v > 1<<32-1) {
			c.fail(ErrValue)
		}
		last = k
		f.Details.Put(k, v)
	}
	return c.done()
}
