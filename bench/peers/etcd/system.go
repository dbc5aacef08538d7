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
	"go.uber.org/zap"

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
	client  *clientv3.Client
	version string

	mu      sync.Mutex
	clients map[int]*clientv3.Client // of subscribers, by connection, and of publishers that share, below 0
}

func drive(fs *flag.FlagSet) func(context.Context, string, load.Spec) (load.System, error) {
	place := fs.String("place", "", "prefix of keys to use and to keep (default: one for the run, removed after it)")
	share := fs.Int("share", 0, "connections that all publishers share (default: each has its own)")
	return func(ctx context.Context, addr string, spec load.Spec) (load.System, error) {
		s := &system{
			addr: addr, spec: spec, prefix: *place, keep: *place != "", share: *share,
			clients: make(map[int]*clientv3.Client),
		}
		if s.prefix == "" {
			s.prefix = fmt.Sprintf("load-%d", time.Now().UnixNano())
		}
		s.prefix += "/"
		var err error
		if s.client, err = s.dial(); err != nil {
			return nil, err
		}
		status, err := s.client.Status(ctx, addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("status: %w", err), s.client.Close())
		}
		s.version = status.Version
		return s, nil
	}
}

func (s *system) dial() (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, DialTimeout: 30 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", s.addr, err)
	}
	return c, nil
}

func (s *system) String() string {
	if s.spec.Workload == load.Sub || s.spec.Workload == load.Fanout {
		return "etcd " + s.version + ", watch"
	}
	return "etcd " + s.version + ", put"
}

func (s *system) Close() error {
	var err error
	if !s.keep {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = s.client.Delete(ctx, s.prefix, clientv3.WithPrefix())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	clear(s.clients)
	return errors.Join(err, s.client.Close())
}

// publisher puts, over a connection of its own, with as many goroutines as messages may be under way: a put is a call
// that returns with its answer.
type publisher struct {
	client *clientv3.Client
	own    bool // nobody shares the connection
	done   load.Done
	keys   []string
	n      int

	ctx    context.Context //nolint:containedctx // of the puts that outlive the call of Publish
	cancel context.CancelFunc
	puts   chan put
	ended  sync.WaitGroup
}

type put struct {
	key, value string
	at         int64
}

func (s *system) Publisher(_ context.Context, i int, done load.Done) (load.Publisher, error) {
	c, err := s.publisherClient(i)
	if err != nil {
		return nil, err
	}
	p := &publisher{client: c, own: s.share == 0, done: done, keys: make([]string, keys)}
	for k := range p.keys {
		p.keys[k] = fmt.Sprintf("%s%d/%d", s.prefix, i, k)
	}
	if s.spec.InFlight == 1 {
		return p, nil
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.puts = make(chan put)
	for range s.spec.InFlight {
		p.ended.Go(func() {
			for job := range p.puts {
				p.put(p.ctx, job)
			}
		})
	}
	return p, nil
}

func (p *publisher) Publish(ctx context.Context, msg []byte, at int64) error {
	job := put{key: p.keys[p.n%keys], value: string(msg), at: at}
	p.n++
	if p.puts == nil {
		p.put(ctx, job)
		return nil
	}
	select {
	case p.puts <- job:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *publisher) put(ctx context.Context, job put) {
	_, err := p.client.Put(ctx, job.key, job.value)
	p.done(job.at, 1, err)
}

func (p *publisher) Close() error {
	if p.puts != nil {
		p.cancel()
		close(p.puts)
		p.ended.Wait()
	}
	if !p.own {
		return nil
	}
	return p.client.Close()
}

func (s *system) publisherClient(i int) (*clientv3.Client, error) {
	if s.share == 0 {
		return s.dial()
	}
	return s.connection(-1 - i%s.share)
}

// Subscribe watches the prefix. Watches of one client share a stream, as they do in programs that use etcd.
func (s *system) Subscribe(ctx context.Context, sub load.Subscription) (io.Closer, error) {
	c, err := s.connection(sub.Connection)
	if err != nil {
		return nil, err
	}
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if sub.Replay {
		first, err := s.firstRevision(ctx, c)
		if err != nil {
			return nil, err
		}
		opts = append(opts, clientv3.WithRev(first))
	}
	watching, cancel := context.WithCancel(context.Background())
	events := c.Watch(watching, s.prefix, opts...)
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
		if err := follow(events, sub.Each); watching.Err() == nil {
			sub.Fail(err)
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
func (s *system) firstRevision(ctx context.Context, c *clientv3.Client) (int64, error) {
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
func (s *system) connection(i int) (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[i]; c != nil {
		return c, nil
	}
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	s.clients[i] = c
	return c, nil
}
