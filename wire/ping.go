// SPDX-License-Identifier: Apache-2.0

package wire

// Ping asks for a Pong, on any lane.
type Ping struct{}

// Pong answers Ping.
type Pong struct{}

// Type returns TypePing.
func (*Ping) Type() Type { return TypePing }

// Size returns 0: there is no body.
func (*Ping) Size() int { return 0 }

// Append appends nothing.
func (*Ping) Append(dst []byte) []byte { return dst }

// Parse accepts an empty body.
func (*Ping) Parse(body []byte) error { return parseEmpty(TypePing, body) }

// Type returns TypePong.
func (*Pong) Type() Type { return TypePong }

// Size returns 0: there is no body.
func (*Pong) Size() int { return 0 }

// Append appends nothing.
func (*Pong) Append(dst []byte) []byte { return dst }

// Parse accepts an empty body.
func (*Pong) Parse(body []byte) error { return parseEmpty(TypePong, body) }

func parseEmpty(t Type, body []byte) error {
	c := cursor{body: body, typ: t}
	return c.done()
}
