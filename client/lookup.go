// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Info says what a name stands for.
type Info struct {
	// ID is random and never used again: it tells a stream from a later one of the same name.
	ID batch.LogID
	// Name in full: tenant/namespace/name.
	Name   string
	Shards int
	// Ack is the log's rule, MinAck the least a publisher may ask for.
	Ack, MinAck AckLevel
	Fsync       wire.Fsync
	Storage     wire.Storage
}

// Offsets says which offsets of a shard can be read: Earliest to Latest, Latest exclusive.
type Offsets struct {
	Shard            uint32
	Generation       uint64
	Earliest, Latest uint64
	// AppendTime of the last batch; zero when there is none.
	AppendTime time.Time
}

// fullName places a short name in the client's tenant and namespace.
func (c *Client) fullName(name string) (string, *Error) {
	t, n, base, err := control.SplitName(name, c.cfg.tenant, c.cfg.namespace)
	if err != nil {
		return "", code.New(code.BadRequest, "%w", err)
	}
	return control.FullName(t, n, base), nil
}

// lookup asks what a name stands for.
func (c *Client) lookup(ctx context.Context, name string) (*wire.LogInfo, *Error) {
	full, e := c.fullName(name)
	if e != nil {
		return nil, e
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	info := &wire.LogInfo{}
	if e := c.caller.call(ctx, &wire.Lookup{Name: full}, info); e != nil {
		return nil, e
	}
	if len(info.Shards) == 0 {
		return nil, code.New(code.Protocol, "lookup %s: the broker says it has no shards", full)
	}
	return info, nil
}

// Info looks up a stream.
func (c *Client) Info(ctx context.Context, name string) (*Info, error) {
	i, err := c.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return &Info{
		ID: i.Log, Name: i.Name, Shards: len(i.Shards), Ack: i.Ack, MinAck: i.MinAck, Fsync: i.Fsync, Storage: i.Storage,
	}, nil
}

// Offsets asks which offsets of each shard can be read.
func (c *Client) Offsets(ctx context.Context, name string) ([]Offsets, error) {
	i, err := c.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	all := make([]Offsets, len(i.Shards))
	for s := range all {
		var ok wire.OffsetsOk
		if err := c.caller.call(ctx, &wire.Offsets{Log: i.Log, Shard: uint32(s)}, &ok); err != nil {
			return nil, err
		}
		all[s] = Offsets{Shard: uint32(s), Generation: ok.Generation, Earliest: ok.Earliest, Latest: ok.Latest}
		if ok.AppendTime != 0 {
			all[s].AppendTime = time.UnixMicro(ok.AppendTime)
		}
	}
	return all, nil
}

// limits are the bounds of the broker that the client is connected to.
func (c *Client) limits() batch.Limits {
	lim := batch.Limits{
		Batch: batch.MaxBatch, Record: batch.MaxRecord, Key: batch.MaxKey,
		Headers: batch.MaxHeaders, HeaderBytes: batch.MaxHeaderBytes, Records: batch.MaxRecords,
	}
	conn := c.requests.Current()
	if conn == nil {
		return lim
	}
	told := conn.Hello.Limits
	lower := func(v *int, limit int) {
		if limit > 0 {
			*v = min(*v, limit)
		}
	}
	lower(&lim.Batch, int(told.MaxBatch))
	lower(&lim.Batch, int(told.MaxFrame)-wire.PublishHead)
	lower(&lim.Batch, int(told.MaxInFlight)-wire.PublishHead)
	lower(&lim.Record, int(told.MaxRecord))
	lower(&lim.Key, int(told.MaxKey))
	lower(&lim.Headers, int(told.MaxHeaders))
	lower(&lim.HeaderBytes, int(told.MaxHeaderBytes))
	return lim
}

// limits are the bounds on what a producer may send.
type limits = batch.Limits
