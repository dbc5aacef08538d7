// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"
	"fmt"
	"sync"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/router/hash"
)

// turn is how many messages in a row go to one shard when a publisher has several. Each in turn would split what a batch
// could hold together.
const turn = 32

// publisher is one publisher, of a client of its own or of one that is shared.
type publisher struct {
	c     *client.Client // nil when others share it
	p     *client.Publisher
	done  load.Done
	wait  bool    // for each answer
	lanes []*lane // one for each shard that is this publisher's
	count int
	all   sync.WaitGroup
}

// lane is the messages to one shard, which are answered in order: one goroutine waits for the oldest.
type lane struct {
	key  []byte // what leads to the shard; nil when there is but one
	wake chan struct{}

	mu      sync.Mutex
	pending []pending // oldest first
	closed  bool
}

// pending is messages of one batch with one stamp: they have one fate.
type pending struct {
	future client.Future
	batch  <-chan struct{}
	at     int64
	n      int
}

// Publisher connects. The shards are shared out: publisher i has shard i mod shards, and those behind it in steps of the
// number of publishers when there are fewer of them than shards.
func (s *System) Publisher(ctx context.Context, i int, done load.Done) (load.Publisher, error) {
	c, own, err := s.publisherClient(ctx, i)
	if err != nil {
		return nil, err
	}
	p := &publisher{p: c.Publisher(s.name), done: done, wait: s.cfg.OneAtATime}
	if own {
		p.c = c
	}
	for shard := i % s.shards; shard < s.shards; shard += max(1, s.cfg.Publishers) {
		l := &lane{wake: make(chan struct{}, 1)}
		if s.shards > 1 {
			l.key = keyOf(shard, s.shards)
		}
		p.lanes = append(p.lanes, l)
		if p.wait {
			continue
		}
		p.all.Go(func() { p.reap(l) })
	}
	return p, nil
}

// publisherClient is the client of publisher i, and whether it is that one's own.
func (s *System) publisherClient(ctx context.Context, i int) (c *client.Client, own bool, err error) {
	if s.cfg.Connections == 0 {
		c, err = s.connect(ctx)
		return c, true, err
	}
	c, err = s.sharedClient(ctx, connection{publishing: true, number: i % s.cfg.Connections})
	return c, false, err
}

// keyOf finds a key that lies in the shard.
func keyOf(shard, shards int) []byte {
	for n := 0; ; n++ {
		if key := fmt.Appendf(nil, "%d", n); hash.Shard(key, shards) == uint32(shard) {
			return key
		}
	}
}

func (p *publisher) Publish(ctx context.Context, msg []byte, at int64) error {
	l := p.lanes[p.count/turn%len(p.lanes)]
	p.count++
	rec := client.Record{ShardKey: l.key, Value: msg}
	if p.wait {
		_, err := p.p.Publish(ctx, rec)
		p.done(at, 1, err)
		return nil
	}
	l.add(p.p.PublishAsync(ctx, rec), at)
	return nil
}

// add puts the message behind the others of its batch.
func (l *lane) add(f client.Future, at int64) {
	batch := f.Done()
	l.mu.Lock()
	if n := len(l.pending); n > 0 && l.pending[n-1].batch == batch && l.pending[n-1].at == at {
		l.pending[n-1].n++
		l.mu.Unlock()
		return
	}
	l.pending = append(l.pending, pending{future: f, batch: batch, at: at, n: 1})
	first := len(l.pending) == 1
	l.mu.Unlock()
	if first {
		l.signal()
	}
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns what has come since, in exchange for the room of what came before. Messages of the last batch may still be
// added behind it: they wait for nothing more then.
func (l *lane) take(room []pending) (taken []pending, more bool) {
	for {
		l.mu.Lock()
		taken, closed := l.pending, l.closed
		if len(taken) > 0 {
			l.pending = room[:0]
			l.mu.Unlock()
			return taken, true
		}
		l.mu.Unlock()
		if closed {
			return nil, false
		}
		<-l.wake
	}
}

// reap tells of the answers.
func (p *publisher) reap(l *lane) {
	var taken []pending
	for {
		var more bool
		if taken, more = l.take(taken); !more {
			return
		}
		for i := range taken {
			// It ends by itself: with an answer, or its delivery timeout, or the client.
			_, err := taken[i].future.Wait(context.Background())
			p.done(taken[i].at, taken[i].n, err)
			taken[i] = pending{}
		}
	}
}

// Close ends the client: what is under way fails.
func (p *publisher) Close() error {
	if p.c != nil {
		p.c.Close()
	}
	for _, l := range p.lanes {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.signal()
	}
	p.all.Wait()
	return nil
}
