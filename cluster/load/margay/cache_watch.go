// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"
	"errors"
	"io"
	"sync"

	"margay.dev/client"
	"margay.dev/cluster/load"
)

var errReset = errors.New("the place where the watch stood is gone: changes are missing")

// Watch watches over a client that those of the same connection share.
func (s *Cache) Watch(ctx context.Context, o load.Watcher) (io.Closer, error) {
	c, err := s.sharedClient(ctx, connection{number: o.Connection})
	if err != nil {
		return nil, err
	}
	which := client.Key(o.Key)
	if o.Prefix {
		which = client.Prefix(o.Key)
	}
	w, err := c.Cache(s.name).Watch(ctx, which)
	if err != nil {
		return nil, err
	}
	r := &watch{w: w}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.read(ctx, o) })
	return r, nil
}

type watch struct {
	w      *client.Watch
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (r *watch) read(ctx context.Context, o load.Watcher) {
	for ch, err := range r.w.Changes(ctx) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.Fail(err)
			return
		case ch.Kind == client.Reset:
			o.Fail(errReset)
			return
		case ch.Kind == client.Put:
			o.Each(ch.Entry.Value)
		}
	}
}

// Close ends it.
func (r *watch) Close() error {
	r.cancel()
	r.wg.Wait()
	r.w.Close()
	return nil
}
