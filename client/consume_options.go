// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"
	"unicode/utf8"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// DefaultMaxInFlight is how many messages a consumer has that are not settled, those included that wait here.
	DefaultMaxInFlight = 256
	// DefaultConsumeBuffer bounds what a consumer holds for the application, in bytes.
	DefaultConsumeBuffer = 16 << 20
)

// ConsumeOption sets up a Consumer.
type ConsumeOption interface{ applyConsume(c *consumeConfig) }

type consumeConfig struct {
	maxInFlight int
	name        string
	mustExist   bool
	concurrency int
	buffer      int64
	mergeAfter  time.Duration
	onStatus    func(Status)
}

func defaultConsumeConfig() consumeConfig {
	return consumeConfig{maxInFlight: DefaultMaxInFlight, concurrency: 1, buffer: DefaultConsumeBuffer, mergeAfter: mergeAfter}
}

type consumeOption func(c *consumeConfig)

func (o consumeOption) applyConsume(c *consumeConfig) { o(c) }

// MaxInFlight is how many messages may be out to the consumer and not settled, over all shards: those that it works on and those
// that wait here so that no time is lost between two. More is faster, fewer spreads them better over consumers whose work is long.
// Default DefaultMaxInFlight.
func MaxInFlight(n int) ConsumeOption {
	return consumeOption(func(c *consumeConfig) { c.maxInFlight = n })
}

// ConsumerName is what lists call the consumer, at most 64 bytes. Default none.
func ConsumerName(name string) ConsumeOption {
	return consumeOption(func(c *consumeConfig) { c.name = name })
}

// MustExist refuses a group that is not there, with ErrNotFound, instead of making it.
func MustExist() ConsumeOption { return consumeOption(func(c *consumeConfig) { c.mustExist = true }) }

// Concurrency is how many messages are worked on at a time, when that is more than one at first: Handle says so by itself, several
// iterations do not. When the process dies, brokers count an attempt of no more messages than that, and of those that it had told
// them it had begun.
func Concurrency(n int) ConsumeOption {
	return consumeOption(func(c *consumeConfig) { c.concurrency = n })
}

// ConsumeBuffer bounds what the consumer holds for the application, in bytes; what comes beyond is given back. Default
// DefaultConsumeBuffer.
func ConsumeBuffer(bytes int64) ConsumeOption {
	return consumeOption(func(c *consumeConfig) { c.buffer = bytes })
}

func (o statusOption) applyConsume(c *consumeConfig) { c.onStatus = o }

func (c *consumeConfig) check(queue, group string) *Error {
	fail := func(format string, args ...any) *Error {
		return code.New(code.BadRequest, "consume "+queue+": "+format, args...)
	}
	switch {
	case c.maxInFlight < 1 || c.maxInFlight > wire.MaxInFlight:
		return fail("%d messages in flight: want 1 to %d", c.maxInFlight, wire.MaxInFlight)
	case c.concurrency < 1:
		return fail("a concurrency of %d: want at least 1", c.concurrency)
	case c.buffer < 1:
		return fail("a buffer of %d bytes: want at least 1", c.buffer)
	case len(c.name) > wire.MaxName || !utf8.ValidString(c.name):
		return fail("the consumer's name %.80q: want UTF-8 of at most %d bytes", c.name, wire.MaxName)
	}
	return checkGroup(queue, group)
}

// checkGroup refuses what is no name of a group.
func checkGroup(queue, group string) *Error {
	if !wire.ValidName(group) {
		return code.New(code.BadRequest, "group %.80q of %s: want %s", group, queue, wire.NameRule)
	}
	return nil
}
