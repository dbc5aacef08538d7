// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"margay.dev/wire"
)

// Cursor is how far a durable subscription has got in one shard.
type Cursor struct {
	Name  string
	Shard uint32
	// Offset of the next record to read, Generation of the one before it (0: not known).
	Offset, Generation uint64
	// Updated is when it was last opened or moved.
	Updated time.Time
	// Held: a subscription has it open.
	Held bool
}

// Cursors lists the durable subscriptions of a stream, by shard and name.
func (c *Client) Cursors(ctx context.Context, stream string) ([]Cursor, error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	info, e := c.lookup(ctx, stream)
	if e != nil {
		return nil, e
	}
	if err := c.lacks(wire.FeatureCursors, "cursors of "+info.Name); err != nil {
		return nil, err
	}
	var all wire.Cursors
	if e := c.caller.call(ctx, &wire.CursorList{Log: info.Log}, &all); e != nil {
		return nil, e
	}
	out := make([]Cursor, len(all.Cursors))
	for i := range all.Cursors {
		x := &all.Cursors[i]
		out[i] = Cursor{
			Name: x.Name, Shard: x.Shard, Offset: x.Offset, Generation: x.Generation, Updated: time.UnixMicro(x.Updated), Held: x.Held,
		}
	}
	return out, nil
}

// DeleteCursor forgets a durable subscription; one that has it open ends with ErrDeleted. It is ErrNotFound when there is
// none, also when an earlier try of the same call has deleted it and its answer was lost.
func (c *Client) DeleteCursor(ctx context.Context, stream, name string) error {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	info, e := c.lookup(ctx, stream)
	if e != nil {
		return e
	}
	if err := c.lacks(wire.FeatureCursors, "cursors of "+info.Name); err != nil {
		return err
	}
	if e := c.caller.call(ctx, &wire.CursorDelete{Log: info.Log, Name: name}, &wire.Done{}); e != nil {
		if e.Class != Fatal {
			e = e.WithClass(Unknown) // an earlier try may have got through
		}
		return e
	}
	return nil
}
