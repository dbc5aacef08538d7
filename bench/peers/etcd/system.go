// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"margay.dev/cluster/load"
)

// keys is how many keys a client puts in turn. The versions of a key are what a log's records are elsewhere.
const keys = 1000

// system is the keys below one prefix.
type system struct {
	addr    string
	spec    load.Spec
	prefix  string
	keep    bool
	share   int // connections of all publishers; 0 for one each
	main    *connection
	version string

	mu      sync.Mutex
	clients map[int]*connection // of subscribers, by connection, and of publishers that share, below 0
}

func drive(fs *flag.FlagSet) func(context.Context, string, load.Spec) (load.System, error) {
	place := fs.String("place", "", "prefix of keys to use and to keep (default: one for the run, removed after it)")
	share := fs.Int("share", 0, "connections that all publishers share (default: each has its own)")
	return func(ctx context.Context, addr string, spec load.Spec) (load.System, error) {
		s := &system{
			addr: addr, spec: spec, prefix: *place, keep: *place != "", share: *share,
			clients: make(map[int]*connection),
		}
		if s.prefix == "" {
			s.prefix = fmt.Sprintf("load-%d", time.Now().UnixNano())
		}
		s.prefix += "/"
		var err error
		if s.main, err = dial(ctx, addr); err != nil {
			return nil, err
		}
		status, err := s.main.Status(ctx, addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("status: %w", err), s.main.Close())
		}
		s.version = status.Version
		if spec.Workload.HasKeys() {
			return load.Keyed(kv{s}), nil
		}
		return s, nil
	}
}

func (s *system) String() string {
	switch s.spec.Workload {
	case load.Sub, load.Fanout, load.Watch:
		return "etcd " + s.version + ", watch"
	case load.Get:
		return "etcd " + s.version + ", get"
	default:
		return "etcd " + s.version + ", put"
	}
}

func (s *system) Close() error {
	var err error
	if !s.keep {
		ctx, cancel := context.WithTimeout(s.main.alive, time.Minute)
		defer cancel()
		if _, err = s.main.Delete(ctx, s.prefix, clientv3.WithPrefix()); err != nil {
			err = fmt.Errorf("remove %s: %w", s.prefix, errors.Join(err, context.Cause(s.main.alive)))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	clear(s.clients)
	return errors.Join(err, s.main.Close())
}

// Subscribe watches the prefix. Watches of one client share a stream, as they do in programs that use etcd.
func (s *system) Subscribe(ctx context.Context, sub load.Subscription) (io.Closer, error) {
	c, err := s.connection(ctx, sub.Connection)
	if err != nil {
		return nil, err
	}
	opts := []clientv3.OpOption{clientv3.WithPrefix()}
	if sub.Replay {
		first, err := s.firstRevision(ctx, c)
		if err != nil {
			return nil, err
		}
		opts = append(opts, clientv3.WithRev(first))
	}
	return s.watch(ctx, c, s.prefix, opts, sub.Each, sub.Fail)
}

// watch hands on the values of puts from when it returns.
func (s *system) watch(
	ctx context.Context, c *connection, key string, opts []clientv3.OpOption, each func([]byte), fail func(error),
) (io.Closer, error) {
	watching, cancel := context.WithCancel(c.alive)
	events := c.Watch(watching, key, append(opts, clientv3.WithCreatedNotify())...)
	select {
	case r, ok := <-events: // it says that the watch is there, and nothing else
		if err := r.Err(); err != nil || !ok {
			cancel()
			return nil, fmt.Errorf("watch: %w", errors.Join(errEnded, err))
		}
	case <-ctx.Done():
		cancel()
		return nil, fmt.Errorf("watch: %w", ctx.Err())
	}
	w := &watch{cancel: cancel}
	w.ended.Go(func() {
		err := follow(events, each)
		if cause := context.Cause(watching); cause == nil {
			fail(err)
		} else if errors.Is(cause, errClosed) { // by the server, and not by us
			fail(cause)
		}
	})
	return w, nil
}

var errEnded = errors.New("ended")

// follow hands on the values of events until there are no more.
func follow(events clientv3.WatchChan, each func([]byte)) error {
	for r := range events {
		if err := r.Err(); err != nil {
			return err
		}
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypePut {
				each(e.Kv.Value)
			}
		}
	}
	return errEnded
}

type watch struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (w *watch) Close() error {
	w.cancel()
	w.ended.Wait()
	return nil
}

// firstRevision is that of the first put below the prefix.
func (s *system) firstRevision(ctx context.Context, c *connection) (int64, error) {
	r, err := c.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return 0, fmt.Errorf("find the first revision: %w", err)
	}
	if len(r.Kvs) == 0 {
		return r.Header.Revision + 1, nil
	}
	return r.Kvs[0].CreateRevision, nil
}

// connection returns the one that those of this number share.
func (s *system) connection(ctx context.Context, i int) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[i]; c != nil {
		return c, nil
	}
	c, err := dial(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	s.clients[i] = c
	return c, nil
}
