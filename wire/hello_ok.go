// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Limits are the bounds a broker holds, told in HelloOk so that a client refuses at home what the
// broker would refuse.
type Limits struct {
	// Sizes in bytes; MaxHeaderBytes is of all headers of a record together.
	MaxFrame, MaxBatch, MaxRecord, MaxKey, MaxHeaderBytes uint32
	// MaxHeaders is the number of headers of a record.
	MaxHeaders uint16
	// MaxInFlight is how many bytes of publishes a connection may have unanswered.
	MaxInFlight uint32
}

// HelloOk answers Hello.
type HelloOk struct {
	Version  uint16
	Features Features
	Limits   Limits
	// KeepAliveMs and IdleMs: how often to show life, and after how long a silence the connection is
	// given up, in milliseconds.
	KeepAliveMs, IdleMs uint32
	Node, Cluster       string
}

const helloOkFixed = 2 + 8 + 4*4 + 2 + 4 + 4 + 2*4

// Type returns TypeHelloOk.
func (*HelloOk) Type() Type { return TypeHelloOk }

// Size returns the size of the body.
func (f *HelloOk) Size() int { return helloOkFixed + stringSize(f.Node) + stringSize(f.Cluster) }

// Append appends the body.
func (f *HelloOk) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, f.Version)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.Features))
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxFrame)
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxBatch)
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxRecord)
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxKey)
	dst = binary.LittleEndian.AppendUint16(dst, f.Limits.MaxHeaders)
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxHeaderBytes)
	dst = binary.LittleEndian.AppendUint32(dst, f.Limits.MaxInFlight)
	dst = binary.LittleEndian.AppendUint32(dst, f.KeepAliveMs)
	dst = binary.LittleEndian.AppendUint32(dst, f.IdleMs)
	dst = appendString(dst, f.Node)
	return appendString(dst, f.Cluster)
}

// Parse reads the body.
func (f *HelloOk) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeHelloOk}
	f.Version = c.u16()
	f.Features = Features(c.u64())
	f.Limits.MaxFrame = c.u32()
	f.Limits.MaxBatch = c.u32()
	f.Limits.MaxRecord = c.u32()
	f.Limits.MaxKey = c.u32()
	f.Limits.MaxHeaders = c.u16()
	f.Limits.MaxHeaderBytes = c.u32()
	f.Limits.MaxInFlight = c.u32()
	f.KeepAliveMs = c.u32()
	f.IdleMs = c.u32()
	f.Node = c.string()
	f.Cluster = c.string()
	return c.done()
}
