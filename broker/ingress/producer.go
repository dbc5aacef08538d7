// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"

	"margay.dev/broker/shard"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/token"
)

// producerState tells who may publish what of a producer is committed.
func (l *lane) producerState(ctx context.Context, f *wire.ProducerState) (wire.Frame, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(f.Log))
	if err := l.allow(rl, found, token.Publish); err != nil {
		return nil, err
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return nil, refused
	}
	last := &wire.ProducerLast{}
	if err := s.Ask(ctx, func(c *shard.Core) {
		last.LastSequence, last.BaseOffset, last.Known = c.ProducerLast(f.Producer)
	}); err != nil {
		return nil, err
	}
	return last, nil
}
