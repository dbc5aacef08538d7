// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"time"

	"margay.dev/broker/stream"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/token"
)

// trimWithin is how long a trim may take to be as durable as the log's records are.
const trimWithin = 30 * time.Second

// trim gives up the head of a shard, for who may manage the log.
func (l *lane) trim(ctx context.Context, f *wire.Trim) (wire.Frame, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(f.Log))
	if err := l.allow(rl, found, token.Manage); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, trimWithin) // a disk that hangs must not hold the lane for ever
	defer cancel()
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return nil, refused
	}
	if f.Kind == wire.StartOffset {
		return trimmed(s.Trim(ctx, f.At))
	}
	if err := stream.CheckTime(f.At, l.conn.srv.cfg.Wall()); err != nil {
		return nil, err
	}
	return trimmed(s.TrimTime(ctx, int64(f.At)))
}

func trimmed(earliest uint64, err error) (wire.Frame, error) {
	if err != nil {
		return nil, err
	}
	return &wire.Trimmed{Earliest: earliest}, nil
}
