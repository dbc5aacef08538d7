// SPDX-License-Identifier: Apache-2.0

// Package streams holds the tests of streams that need a client and a broker: publish, store, replay, tail,
// and what faults do to them. It has no code of its own.
package streams
