// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"margay.dev/bench/internal/journal"
	"margay.dev/bench/internal/transport"
)

// Server appends what its clients send to one journal.
type Server struct {
	// Journal is the server's own while it serves.
	Journal *journal.Journal
	// Unflushed leaves the flush out.
	Unflushed bool

	mu     sync.Mutex
	queued []arrival
	wake   chan struct{} // has room for one: who finds it full knows that the appender will look
}

// arrival is a batch that waits for the appender.
type arrival struct {
	from  *lane
	batch []byte
	id    uint64
}

// lane is the stream of one client. The appender alone writes to it.
type lane struct {
	stream transport.Stream
	acks   []byte // of the round under way
}

// Serve answers on every connection until ctx ends.
func (s *Server) Serve(ctx context.Context, l transport.Listener) error {
	s.wake = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	broken := make(chan error, 1)
	all.Go(func() {
		defer cancel()
		broken <- s.append(ctx)
	})
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // Accept tells
	for {
		c, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return <-broken
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		all.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = c.Close() })() // whoever reads is told
			defer func() { _ = c.Close() }()
			s.read(ctx, c)
		})
	}
}

// read takes batches from a client until it leaves.
func (s *Server) read(ctx context.Context, c transport.Conn) {
	stream, err := c.AcceptStream(ctx)
	if err != nil {
		return
	}
	l := &lane{stream: stream}
	for in := bufio.NewReaderSize(stream, 64<<10); ; {
		batch, id, err := readBatch(in)
		if err != nil {
			return // the client sees its connection end
		}
		s.mu.Lock()
		s.queued = append(s.queued, arrival{l, batch, id})
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// append is the appender: all that has queued goes down in one write and one flush, and is answered by one write for each
// client.
func (s *Server) append(ctx context.Context) error {
	var round, spare []arrival
	var joined []byte
	var lanes []*lane
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		round, s.queued = s.queued, spare[:0]
		s.mu.Unlock()
		if len(round) == 0 {
			spare = round
			continue
		}
		joined = joined[:0]
		p := round[0].batch
		if len(round) > 1 {
			for _, a := range round {
				joined = append(joined, a.batch...)
			}
			p = joined
		}
		err := s.Journal.Append(p)
		if err == nil && !s.Unflushed {
			err = s.Journal.Sync()
		}
		if err != nil {
			return err
		}
		lanes = lanes[:0]
		for i, a := range round {
			if len(a.from.acks) == 0 {
				lanes = append(lanes, a.from)
			}
			a.from.acks = binary.LittleEndian.AppendUint64(a.from.acks, a.id)
			round[i] = arrival{}
		}
		for _, l := range lanes {
			_, _ = l.stream.Write(l.acks) // a client that has left waits for nothing
			l.acks = l.acks[:0]
		}
		spare = round
	}
}
