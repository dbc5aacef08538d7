// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"

	"margay.dev/cluster/load"
)

// kv is the keys below one prefix, as what they are.
type kv struct{ *system }

// caller makes calls over a connection.
type caller struct {
	conn  *connection
	own   bool
	calls *load.Calls
}

func (s kv) caller(ctx context.Context, i int, done load.Done, call func(c *connection, key string, value []byte) error) (*caller, error) {
	c := &caller{own: s.share == 0}
	var err error
	if c.own {
		c.conn, err = dial(ctx, s.addr)
	} else {
		c.conn, err = s.connection(ctx, -1-i%s.share)
	}
	if err != nil {
		return nil, err
	}
	c.calls = load.NewCalls(s.spec.InFlight, done, func(key string, value []byte) error { return call(c.conn, s.prefix+key, value) })
	return c, nil
}

func (s kv) Putter(ctx context.Context, i int, done load.Done) (load.Putter, error) {
	return s.caller(ctx, i, done, func(c *connection, key string, value []byte) error {
		_, err := c.Put(c.alive, key, string(value))
		return err
	})
}

// Getter reads as etcd does by default, which is what Margay promises too: no answer is older than the call.
func (s kv) Getter(ctx context.Context, i int, done load.Done) (load.Getter, error) {
	return s.caller(ctx, i, done, func(c *connection, key string, _ []byte) error {
		r, err := c.Get(c.alive, key)
		if err != nil {
			return err
		}
		if len(r.Kvs) != 1 || len(r.Kvs[0].Value) != s.spec.Size {
			return load.ValueError(key, len(r.Kvs), s.spec.Size)
		}
		return nil
	})
}

func (c *caller) Put(ctx context.Context, key string, value []byte, at int64) error {
	return c.calls.Do(ctx, key, value, at)
}

func (c *caller) Get(ctx context.Context, key string, at int64) error {
	return c.calls.Do(ctx, key, nil, at)
}

func (c *caller) Close() error {
	var err error
	if c.own {
		err = c.conn.Close()
	}
	c.calls.Close()
	return err
}

func (s kv) Watch(ctx context.Context, w load.Watcher) (io.Closer, error) {
	var opts []clientv3.OpOption
	if w.Prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	c, err := s.connection(ctx, w.Connection)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, c, s.prefix+w.Key, opts, w.Each, w.Fail)
}
