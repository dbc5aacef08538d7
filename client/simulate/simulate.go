// SPDX-License-Identifier: Apache-2.0

// Package simulate names the client's pure core for whoever steps it without a connection, a clock or a goroutine, as the
// simulation of a node does; it holds no code of its own, and refuses to be an API: what it names may change at any time.
package simulate

import "margay.dev/client/internal/order"

// Line is the order of one publisher's batches in one shard, as the client's publish lanes keep it.
type Line[T any] = order.Line[T]

// Item is one batch in a Line.
type Item[T any] = order.Item[T]

// Done is a batch whose fate is known.
type Done[T any] = order.Done[T]

// Config sets up a Line.
type Config = order.Config

// NewLine returns an empty line that is down.
func NewLine[T any](cfg Config) *Line[T] { return order.New[T](cfg) }
