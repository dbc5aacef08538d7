// SPDX-License-Identifier: Apache-2.0

package wire

// Done answers requests of which nothing is to be said but that they are done, durably.
type Done struct{}

// Type returns TypeDone.
func (*Done) Type() Type { return TypeDone }

// Size returns 0: there is no body.
func (*Done) Size() int { return 0 }

// Append appends nothing.
func (*Done) Append(dst []byte) []byte { return dst }

// Parse accepts an empty body.
func (*Done) Parse(body []byte) error { return parseEmpty(TypeDone, body) }
