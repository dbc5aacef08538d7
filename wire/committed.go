// SPDX-License-Identifier: Apache-2.0

package wire

// Committed answers Commit: the cursor is durable where it was put.
type Committed struct{}

// Type returns TypeCommitted.
func (*Committed) Type() Type { return TypeCommitted }

// Size returns 0: there is no body.
func (*Committed) Size() int { return 0 }

// Append appends nothing.
func (*Committed) Append(dst []byte) []byte { return dst }

// Parse accepts an empty body.
func (*Committed) Parse(body []byte) error { return parseEmpty(TypeCommitted, body) }
