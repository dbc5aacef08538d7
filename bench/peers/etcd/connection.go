// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/connectivity"
)

var errClosed = errors.New("connection closed")

const dialTimeout = 30 * time.Second

// connection is a client that does not outlive its connection: etcd's waits for a server that is gone, and a run would wait
// with it.
type connection struct {
	*clientv3.Client
	alive context.Context //nolint:containedctx // of all calls; ends with the connection, errClosed is its cause then
	end   context.CancelCauseFunc
	ended sync.WaitGroup
}

func dial(ctx context.Context, addr string) (*connection, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: dialTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", addr, err)
	}
	c := &connection{Client: client}
	c.alive, c.end = context.WithCancelCause(context.Background())
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s: %w", addr, err), c.Close())
	}
	c.ended.Go(func() {
		if c.ActiveConnection().WaitForStateChange(c.alive, connectivity.Ready) {
			c.end(errClosed)
		}
	})
	return c, nil
}

// ready waits for the connection, which would otherwise be made by the first call.
func (c *connection) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	g := c.ActiveConnection()
	g.Connect()
	for {
		state := g.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.TransientFailure || !g.WaitForStateChange(ctx, state) {
			return errors.Join(fmt.Errorf("state %v", state), ctx.Err())
		}
	}
}

// Close ends all calls.
func (c *connection) Close() error {
	c.end(context.Canceled)
	c.ended.Wait()
	if err := c.Client.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
