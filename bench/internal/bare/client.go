// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"margay.dev/bench/internal/transport"
	"margay.dev/cluster/load"
)

// unanswered is how many batches a client has under way before the next one waits and grows, as Margay's client has it.
const unanswered = 4

var errClosed = errors.New("publisher closed")

// System drives a Server.
type System struct {
	Kind transport.Kind
	Addr string
}

var _ load.System = System{}

// Publisher dials a connection for a client.
func (s System) Publisher(ctx context.Context, _ int, done load.Done) (load.Publisher, error) {
	c, err := transport.Dial(ctx, s.Kind, s.Addr)
	if err != nil {
		return nil, err
	}
	stream, err := c.OpenStream(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	p := &publisher{conn: c, stream: stream, done: done, sent: map[uint64][]run{}}
	p.reader.Go(p.read)
	return p, nil
}

// Subscribe is what the prototype does not have.
func (System) Subscribe(context.Context, load.Subscription) (io.Closer, error) {
	return nil, errors.New("the bare prototype delivers nothing")
}

// Close has nothing to remove.
func (System) Close() error { return nil }

// run is messages in a row with the same stamp.
type run struct {
	at int64
	n  int
}

// publisher coalesces what is queued into one batch while enough are under way.
type publisher struct {
	conn   transport.Conn
	stream transport.Stream
	done   load.Done
	reader sync.WaitGroup

	mu     sync.Mutex
	err    error
	open   []byte // the batch that grows, with room for its head; nil when there is none
	runs   []run  // of the open batch
	next   uint64
	sent   map[uint64][]run
	spares [][]byte

	writing sync.Mutex // one write at a time; order among batches means nothing here
}

func (p *publisher) Publish(_ context.Context, msg []byte, at int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if p.open == nil {
		if n := len(p.spares); n > 0 {
			p.open, p.spares = p.spares[n-1][:headSize], p.spares[:n-1]
		} else {
			p.open = make([]byte, headSize, 64<<10)
		}
	}
	p.open = appendRecord(p.open, msg)
	if n := len(p.runs); n > 0 && p.runs[n-1].at == at {
		p.runs[n-1].n++
	} else {
		p.runs = append(p.runs, run{at, 1})
	}
	return nil
}

// Flush sends the open batch if another one may be under way. Otherwise an answer will.
func (p *publisher) Flush(context.Context) error {
	p.mu.Lock()
	if p.open == nil || len(p.sent) >= unanswered || p.err != nil {
		err := p.err
		p.mu.Unlock()
		return err
	}
	batch, id := p.open, p.next
	p.sent[id] = p.runs
	p.open, p.runs = nil, nil
	p.next++
	p.mu.Unlock()

	seal(batch, id)
	p.writing.Lock()
	_, err := p.stream.Write(batch)
	p.writing.Unlock()
	p.mu.Lock()
	p.spares = append(p.spares, batch)
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// read takes answers until the connection ends, and sends what has gathered meanwhile.
func (p *publisher) read() {
	buf, held := make([]byte, 4<<10), 0
	for {
		n, err := p.stream.Read(buf[held:])
		if err != nil {
			p.fail(err)
			return
		}
		held += n
		acks := buf[:held/ackSize*ackSize]
		for a := acks; len(a) > 0; a = a[ackSize:] {
			p.answered(binary.LittleEndian.Uint64(a))
		}
		held = copy(buf, buf[len(acks):held])
		if err := p.Flush(context.Background()); err != nil {
			p.fail(err)
			return
		}
	}
}

func (p *publisher) answered(id uint64) {
	p.mu.Lock()
	runs := p.sent[id]
	delete(p.sent, id)
	p.mu.Unlock()
	for _, r := range runs {
		p.done(r.at, r.n, nil)
	}
}

// fail tells of everything under way.
func (p *publisher) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	lost := p.runs
	for _, runs := range p.sent {
		lost = append(lost, runs...)
	}
	p.runs, p.open = nil, nil
	clear(p.sent)
	p.mu.Unlock()
	for _, r := range lost {
		p.done(r.at, r.n, err)
	}
}

func (p *publisher) Close() error {
	p.mu.Lock()
	if p.err == nil {
		p.err = errClosed
	}
	p.mu.Unlock()
	err := p.conn.Close()
	p.reader.Wait()
	return err
}
