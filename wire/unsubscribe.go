// SPDX-License-Identifier: Apache-2.0

package wire

// Unsubscribe ends the lane's subscription; the broker answers with End for all shards.
type Unsubscribe struct{}

// Type returns TypeUnsubscribe.
func (*Unsubscribe) Type() Type { return TypeUnsubscribe }

// Size returns 0: there is no body.
func (*Unsubscribe) Size() int { return 0 }

// Append appends nothing.
func (*Unsubscribe) Append(dst []byte) []byte { return dst }

// Parse accepts an empty body.
func (*Unsubscribe) Parse(body []byte) error { return parseEmpty(TypeUnsubscribe, body) }
