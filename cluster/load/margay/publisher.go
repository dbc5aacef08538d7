// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"
	"fmt"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/router/hash"
)

// turn is how many messages in a row go to one shard when a publisher has several. Each in turn would split what a batch
// could hold together.
const turn = 32

// publisher is one publisher, of a client of its own or of one that is shared.
type publisher struct {
	answers // a lane for each shard that is this publisher's

	c     *client.Client // nil when others share it
	p     *client.Publisher
	wait  bool // for each answer
	count int
}

// Publisher connects. The shards are shared out: publisher i has shard i mod shards, and those behind it in steps of the
// number of publishers when there are fewer of them than shards.
func (s *System) Publisher(ctx context.Context, i int, done load.Done) (load.Publisher, error) {
	c, own, err := s.publisherClient(ctx, i)
	if err != nil {
		return nil, err
	}
	p := &publisher{answers: answers{done: done}, p: c.Publisher(s.name), wait: s.cfg.OneAtATime}
	if own {
		p.c = c
	}
	for shard := i % s.shards; shard < s.shards; shard += max(1, s.cfg.Publishers) {
		var key []byte
		if s.shards > 1 {
			key = keyOf(shard, s.shards)
		}
		p.open(key, p.wait)
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

// Close ends the client: what is under way fails.
func (p *publisher) Close() error {
	if p.c != nil {
		p.c.Close()
	}
	p.close()
	return nil
}
