// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"time"

	"margay.dev/wire"
)

// defaultPing is how often a broker that names no keepalive is pinged.
const defaultPing = 3 * time.Second

// ping sends a frame now and then. The transport's own keepalives are too small to draw a stateless reset, by
// which a restarted broker says that the connection is gone: without this, a client that only reads would
// notice at the idle timeout (WR-09).
func (c *Conn) ping(ctx context.Context) {
	every := time.Duration(c.Hello.KeepAliveMs) * time.Millisecond
	if every <= 0 {
		every = defaultPing
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.reply(corrPing, &wire.Ping{})
		case <-ctx.Done():
			return
		}
	}
}
