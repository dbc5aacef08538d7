// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"

	"margay.dev/cluster/load"
)

// publisher puts, with as many goroutines as messages may be under way: a put is a call that returns with its answer.
type publisher struct {
	conn  *connection
	own   bool // nobody shares the connection
	done  load.Done
	keys  []string
	n     int
	puts  chan put
	ended sync.WaitGroup
}

type put struct {
	key, value string
	at         int64
}

func (s *system) Publisher(ctx context.Context, i int, done load.Done) (load.Publisher, error) {
	p := &publisher{own: s.share == 0, done: done, keys: make([]string, keys)}
	var err error
	if p.own {
		p.conn, err = dial(ctx, s.addr)
	} else {
		p.conn, err = s.connection(ctx, -1-i%s.share)
	}
	if err != nil {
		return nil, err
	}
	for k := range p.keys {
		p.keys[k] = fmt.Sprintf("%s%d/%d", s.prefix, i, k)
	}
	if s.spec.InFlight == 1 {
		return p, nil
	}
	p.puts = make(chan put)
	for range s.spec.InFlight {
		p.ended.Go(func() {
			for job := range p.puts {
				p.put(job)
			}
		})
	}
	return p, nil
}

func (p *publisher) Publish(ctx context.Context, msg []byte, at int64) error {
	job := put{key: p.keys[p.n%keys], value: string(msg), at: at}
	p.n++
	if p.puts == nil {
		p.put(job)
		return nil
	}
	select {
	case p.puts <- job:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put waits as long as the connection lives: left to itself, the client waits for the server to come back.
func (p *publisher) put(job put) {
	_, err := p.conn.Put(p.conn.alive, job.key, job.value)
	p.done(job.at, 1, err)
}

func (p *publisher) Close() error {
	var err error
	if p.own {
		err = p.conn.Close()
	}
	if p.puts != nil {
		close(p.puts)
		p.ended.Wait()
	}
	return err
}
