// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// TrimPoint says where a stream is to begin: TrimBeforeOffset or TrimBeforeTime.
type TrimPoint struct {
	kind   wire.StartKind
	at     uint64
	shards []uint32 // none: all of them
}

// TrimBeforeOffset keeps what lies at offset and behind it in one shard. An offset beyond the end of the shard is
// refused with ErrOutOfRange; the end itself, Offsets.Latest, gives up every record that is there.
func TrimBeforeOffset(shard uint32, offset uint64) TrimPoint {
	return TrimPoint{kind: wire.StartOffset, at: offset, shards: []uint32{shard}}
}

// TrimBeforeTime keeps what was appended at t or later (by the broker's clock, to the batch), in the shards that are
// named, or in all of them.
func TrimBeforeTime(t time.Time, shards ...uint32) TrimPoint {
	return TrimPoint{kind: wire.StartTime, at: uint64(t.UnixMicro()), shards: slices.Clone(shards)}
}

// Trimmed says where a shard begins.
type Trimmed struct {
	Shard    uint32
	Earliest uint64
}

// Trim gives up the records of a stream before a point, for good; it needs the grant to manage. It returns when that
// is as durable as the stream's records are, and says where each shard begins then: further on than was asked for when
// it had been so before, since a trim never brings anything back. Readers that stood below learn of it as a gap of
// reason retention, or by ErrOutOfRange. Offsets are never used again.
//
// Asking again is harmless, and is what Trim does itself until ctx ends (or DefaultRequestTimeout). When it fails, the
// shards that are returned are trimmed, and with class Unknown the one after them may be.
func (c *Client) Trim(ctx context.Context, stream string, before TrimPoint) ([]Trimmed, error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	info, err := c.lookup(ctx, stream)
	if err != nil {
		return nil, err
	}
	if conn := c.requests.Current(); conn != nil && !conn.Hello.Features.Has(wire.FeatureTrim) {
		return nil, code.New(code.Unsupported, "trim %s: the broker cannot", info.Name)
	}
	shards := before.shards
	if len(shards) == 0 {
		for s := range info.Shards {
			shards = append(shards, uint32(s))
		}
	}
	done := make([]Trimmed, 0, len(shards))
	for _, s := range shards {
		var ok wire.Trimmed
		request := &wire.Trim{Log: info.Log, Shard: s, Kind: before.kind, At: before.at}
		if err := c.caller.call(ctx, request, &ok); err != nil {
			if err.Class != Fatal {
				err = err.WithClass(Unknown) // an earlier try may have got through
			}
			return done, err
		}
		done = append(done, Trimmed{Shard: s, Earliest: ok.Earliest})
	}
	return done, nil
}
