// SPDX-License-Identifier: Apache-2.0

// Package frames reads the small frames of a lane in the client; it touches the lane only, and refuses bodies larger
// than their kind can need, so that a hostile broker gets no memory.
package frames

import (
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// MaxSmall bounds the body of every frame that carries neither a batch nor entries.
const MaxSmall = 1 << 20

// Read reads the next frame that this build knows, its body into buf, which grows as needed. Frames of a newer broker
// are answered as unsupported and passed over.
func Read(lane *session.Lane, buf []byte) (wire.Header, []byte, error) {
	h, err := lane.ReadSupported()
	if err != nil {
		return h, buf, err
	}
	if limit := limitOf(h.Type); h.Size > limit {
		return h, buf, code.New(code.Protocol, "frame %s: body of %d bytes exceeds %d", h.Type, h.Size, limit)
	}
	buf, err = lane.AppendBody(buf[:0])
	return h, buf, err
}

// MaxEntries bounds the body of a frame with entries of a cache: brokers end one below 4 MiB, or behind one value, which may
// be as large as a batch. The rest is for the keys before it that have none, and what stands around it.
const MaxEntries = batch.MaxBatch + 1<<20

// limitOf is MaxSmall for all but lists, which may be long.
func limitOf(t wire.Type) uint32 {
	switch t {
	case wire.TypeCursors:
		return wire.MaxFrame
	case wire.TypeGot, wire.TypeListed, wire.TypeWatchEntries, wire.TypeBrowsed, wire.TypeGroupInfos:
		return MaxEntries
	default:
		return MaxSmall
	}
}

// Error parses the body of an Error frame; what does not parse is an error too.
func Error(body []byte) error {
	var e wire.Error
	if err := e.Parse(body); err != nil {
		return err
	}
	return e.Err()
}

// Unexpected is the error for a frame that makes no sense where it came.
func Unexpected(h wire.Header, where string) error {
	return code.New(code.Protocol, "%s lane: unexpected frame %s", where, h.Type)
}
