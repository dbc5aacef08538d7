// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/router/hash"
	"margay.dev/wire/control"
)

// Cache is a cache under load.
type Cache struct {
	*System
	// InFlight is how many gets a client makes at once.
	inFlight, size int
}

var _ load.KV = (*Cache)(nil)

// OpenCache makes the cache, or finds it.
func OpenCache(ctx context.Context, cfg Config, spec *load.Spec) (*Cache, error) {
	s, err := open(ctx, cfg, control.PresetCache)
	if err != nil {
		return nil, err
	}
	return &Cache{s, spec.InFlight, spec.Size}, nil
}

// putter puts from one goroutine, with as many puts on their way as it is let.
type putter struct {
	answers // a lane for each shard

	c       *client.Client // nil when others share it
	k       *client.Cache
	options []client.PutOption
	wait    bool // for each answer
}

// Putter connects.
func (s *Cache) Putter(ctx context.Context, i int, done load.Done) (load.Putter, error) {
	c, own, err := s.publisherClient(ctx, i)
	if err != nil {
		return nil, err
	}
	p := &putter{answers: answers{done: done}, k: c.Cache(s.name), wait: s.cfg.OneAtATime}
	if own {
		p.c = c
	}
	if s.cfg.TTL > 0 {
		p.options = append(p.options, client.TTL(s.cfg.TTL))
	}
	for range s.shards {
		p.open(nil, p.wait)
	}
	return p, nil
}

func (p *putter) Put(ctx context.Context, key string, value []byte, at int64) error {
	if p.wait {
		_, err := p.k.Put(ctx, key, value, p.options...)
		p.done(at, 1, err)
		return nil
	}
	l := p.lanes[0]
	if n := len(p.lanes); n > 1 {
		l = p.lanes[hash.Shard([]byte(key), n)]
	}
	l.add(p.k.PutAsync(ctx, key, value, p.options...), at)
	return nil
}

// Close ends the client: what is under way fails.
func (p *putter) Close() error {
	if p.c != nil {
		p.c.Close()
	}
	p.close()
	return nil
}

// getter gets with a goroutine for each get that may be under way, as the many of one program do: those that wait at the same
// time go together.
type getter struct {
	c     *client.Client // nil when others share it
	calls *load.Calls
}

// Getter connects.
func (s *Cache) Getter(ctx context.Context, i int, done load.Done) (load.Getter, error) {
	c, own, err := s.publisherClient(ctx, i)
	if err != nil {
		return nil, err
	}
	k := c.Cache(s.name)
	g := &getter{calls: load.NewCalls(s.inFlight, done, func(key string, _ []byte) error {
		// It ends by itself: with an answer, or its timeout, or the client.
		e, err := k.Get(context.Background(), key)
		if err == nil && len(e.Value) != s.size {
			err = load.ValueError(key, len(e.Value), s.size)
		}
		return err
	})}
	if own {
		g.c = c
	}
	return g, nil
}

func (g *getter) Get(ctx context.Context, key string, at int64) error {
	return g.calls.Do(ctx, key, nil, at)
}

// Close ends the client, and the gets that wait with it.
func (g *getter) Close() error {
	if g.c != nil {
		g.c.Close()
	}
	g.calls.Close()
	return nil
}
