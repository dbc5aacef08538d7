// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"margay.dev/client"
	"margay.dev/cmd/internal/child"
	"margay.dev/examples/data"
)

const (
	// burst and pause pace the publishing to a few seconds, so that a person can watch and the crash
	// falls in the middle; at full speed all would be over at once.
	burst = 100
	pause = 20 * time.Millisecond
	// volley is what is sent in one go right before the kill, so that it hits records under way.
	volley = 1000

	numberHeader = "line"
)

func numbered(line int) []client.Header {
	return []client.Header{{Key: numberHeader, Value: strconv.AppendInt(nil, int64(line), 10)}}
}

func lineNumber(headers []client.Header) (int, bool) {
	for _, h := range headers {
		if h.Key == numberHeader {
			n, err := strconv.Atoi(string(h.Value))
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// crash is the life and death of the node while records are published.
type crash struct {
	mu       sync.Mutex
	killed   time.Time
	ready    time.Time // when the node was back
	resumed  time.Time // when the first record was acknowledged again
	acked    int       // when it was killed
	inFlight int       // sent by then without an answer
}

type answer struct {
	line   int
	future client.Future
}

// publishThroughCrash publishes every line once, and lets the client sort out what the crash does.
func (d *demo) publishThroughCrash(ctx context.Context) error {
	began := time.Now()
	c := &crash{}
	p := d.client.Publisher(stream)
	answers := make(chan answer, len(d.account.lines))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(answers)
		return d.send(ctx, g, p, c, answers)
	})
	g.Go(func() error {
		for a := range answers {
			ack, err := a.future.Wait(ctx)
			if err != nil {
				return fmt.Errorf("publish line %d: %w", a.line, err)
			}
			if err := d.account.promise(a.line, ack); err != nil {
				return err
			}
			c.acknowledged()
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	acked, recognized := d.account.count()
	d.result.takeCrash(c, acked, recognized)
	d.step("publish  all %d records acknowledged after %v", acked, since(began))
	return nil
}

func (d *demo) send(ctx context.Context, g *errgroup.Group, p *client.Publisher, c *crash, answers chan<- answer) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	lines := d.account.lines
	middle := len(lines) / 2
	crashed := false
	for sent := 0; sent < len(lines); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		n := min(burst, len(lines)-sent)
		now := !crashed && sent >= middle
		if now {
			n = min(volley, len(lines)-sent)
		}
		for i := sent; i < sent+n; i++ {
			answers <- answer{i, p.PublishAsync(ctx, client.Record{
				Key: []byte(data.Airport(lines[i])), Value: []byte(lines[i]), Headers: numbered(i),
			})}
		}
		sent += n
		if now {
			crashed = true
			if err := d.kill(c, sent); err != nil {
				return err
			}
			g.Go(func() error { return d.restart(ctx, c) }) // publishing goes on meanwhile
		}
	}
	return nil
}

func (d *demo) kill(c *crash, sent int) error {
	killed := time.Now()
	if err := d.node.Kill(); err != nil {
		return err
	}
	acked, _ := d.account.count()
	c.mu.Lock()
	c.killed, c.acked, c.inFlight = killed, acked, sent-acked
	c.mu.Unlock()
	d.step("crash    kill -9 with %d records acknowledged and %d on their way", acked, sent-acked)
	return nil
}

func (d *demo) restart(ctx context.Context, c *crash) error {
	began := time.Now()
	listen, http := d.context.Addresses[0], hostPort(d.context.HTTP)
	again, err := child.Start(ctx, d.Executable, d.place, "--listen", listen, "--http", http)
	if err != nil {
		return err
	}
	d.node = again
	c.mu.Lock()
	c.ready = time.Now()
	c.mu.Unlock()
	d.step("node     started again on the same directory in %v, process %d; publisher and tail go on by themselves", since(began), again.PID)
	return nil
}

// acknowledged notes the first acknowledgement of the node that came back.
func (c *crash) acknowledged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resumed.IsZero() && !c.ready.IsZero() {
		c.resumed = time.Now()
	}
}
