// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

const (
	// maxAnswerWait bounds what a broker is asked to wait for, so that a batch whose quorum is away is asked about
	// again within its delivery timeout.
	maxAnswerWait = 30 * time.Second
	// answerMargin is how much later than it was asked to a broker may answer, until the lane is given up for another.
	answerMargin = 5 * time.Second
	// joinBelow is the size up to which batches are copied behind each other into one write; larger ones are written
	// from where they lie.
	joinBelow = 16 << 10
)

// publishStream is a lane's connection: written by the lane's run, read by its own goroutine. A nil stream has failed
// at nothing and blocks for ever.
type publishStream struct {
	l    *lane
	conn *link.Conn
	lane *session.Lane
	down chan struct{}
	once sync.Once
	err  error
	wg   sync.WaitGroup
	// useful: a batch was stored over this stream.
	useful atomic.Bool
	// sent is the ticket of the last batch that was given to the transport: no later one can have an answer.
	sent atomic.Uint64

	// The writer's, kept for the next write.
	buf     []byte
	batches []batch.Batch
}

func openPublishStream(ctx context.Context, l *lane) (*publishStream, error) {
	conn, err := l.p.c.publishing.Conn(ctx)
	if err != nil {
		return nil, err
	}
	sl, err := conn.OpenLane(ctx)
	if err != nil {
		return nil, unavailable("open lane", err)
	}
	s := &publishStream{l: l, conn: conn, lane: sl, down: make(chan struct{})}
	s.wg.Go(s.read)
	return s, nil
}

func (s *publishStream) broken() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.down
}

func (s *publishStream) failed() bool {
	select {
	case <-s.broken():
		return s != nil
	default:
		return false
	}
}

// draining: the broker wants nothing more on this connection.
func (s *publishStream) draining() bool { return s != nil && s.conn.Draining() }

func (s *publishStream) fail(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.down)
	})
}

// close ends the stream and waits for its reader.
func (s *publishStream) close() {
	if s == nil {
		return
	}
	s.fail(errLaneEnded)
	s.lane.Reset(code.Cancelled)
	s.wg.Wait()
}

// write encodes what is not encoded yet and sends it all in as few writes as there are large batches.
func (l *lane) write(s *publishStream, items []*item) error {
	s.batches = s.batches[:0]
	for _, it := range items {
		if err := it.Value.encode(it, l.r.builders, l.p.cfg.compression); err != nil {
			return err
		}
		s.batches = append(s.batches, it.Value.encoded)
	}
	// From here on an answer may end a batch: nothing of the flights is touched any more.
	s.sent.Store(items[len(items)-1].Ticket)
	s.buf = s.buf[:0]
	now := time.Now()
	for i, it := range items {
		head := wire.Publish{
			Log: l.r.info.Log, Shard: l.shard, Previous: it.Previous, Ack: l.p.cfg.ack,
			TimeoutMs: answerWait(it.Deadline.Sub(now)), Batch: s.batches[i],
			Conditions: it.Value.conditions, Derives: it.Value.derives,
		}
		s.buf = head.AppendHead(s.buf, it.Ticket)
		if len(head.Batch) <= joinBelow {
			s.buf = append(s.buf, head.Batch...)
			continue
		}
		if err := s.lane.Write(s.buf, head.Batch); err != nil {
			return err
		}
		s.buf = s.buf[:0]
	}
	clear(s.batches)
	if len(s.buf) == 0 {
		return nil
	}
	return s.lane.Write(s.buf)
}

func answerWait(left time.Duration) uint32 {
	return uint32(min(max(left, time.Millisecond), maxAnswerWait) / time.Millisecond)
}

// read takes the answers until the stream ends.
func (s *publishStream) read() {
	var buf []byte
	var pub wire.Published
	for {
		h, body, err := frames.Read(s.lane, buf)
		if err != nil {
			s.fail(err)
			return
		}
		buf = body
		switch h.Type {
		case wire.TypePublished:
			if err = wire.ParseFrame(h, &pub, body); err == nil {
				err = s.stored(h.Corr, &pub)
				s.useful.Store(true)
			}
		case wire.TypeError:
			err = s.parseError(h.Corr, body)
		default:
			err = frames.Unexpected(h, "publish")
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// parseError passes an error to the batch it answers. About the lane as a whole (correlation 0) it ends the stream.
func (s *publishStream) parseError(corr uint64, body []byte) error {
	var e wire.Error
	if err := e.Parse(body); err != nil {
		return err
	}
	err := e.Err()
	if corr == 0 {
		return err
	}
	if err.Code == code.Unauthenticated && s.l.p.c.renews() {
		// The token ended under the connection, for example while the machine slept: a fresh one is on its way.
		s.conn.Reauthenticate()
		err.Class = Refused
	}
	return s.refused(corr, err)
}

// checkOwed: a broker that answers what was not asked must not end a batch that is still being encoded. Called with
// the lane's mu held.
func (s *publishStream) checkOwed(ticket uint64) error {
	if ticket > s.sent.Load() || !s.l.line.Owed(ticket) {
		return code.New(code.Protocol, "publish lane: an answer to nothing (%d)", ticket)
	}
	return nil
}

func (s *publishStream) stored(ticket uint64, p *wire.Published) error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.checkOwed(ticket); err != nil {
		return err
	}
	l.line.Stored(ticket, p.Reached.Has(wire.ReachedDuplicate))
	l.finish(p)
	l.goOn()
	return nil
}

func (s *publishStream) refused(ticket uint64, err *Error) error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.checkOwed(ticket); err != nil {
		return err
	}
	settles := l.settles(ticket)
	if l.line.Amend(ticket, func(f *flight) bool { return f.leaveOut(err, l.r.builders) }) {
		l.goOn()
		return nil
	}
	if lost := l.line.Failed(ticket, err, time.Now()); lost {
		l.p.c.cfg.logger.Warn("a shard no longer holds records it had acknowledged",
			"log", l.r.info.Name, "shard", l.shard, "generation", err.Generation)
	}
	if _, ofRecord := err.Details.Get(code.DetailIndex); !ofRecord && !settles && (err.Code == code.Deleted || err.Code == code.NotFound) {
		// The log is gone: the next record asks what the name stands for now.
		l.ended, l.fatal = true, err
		l.p.drop(l.r)
	}
	l.finish(nil)
	l.goOn()
	if (err.Code == code.ShuttingDown || err.Code == code.NotLeader) && l.line.Outstanding() == 0 {
		return err // not here any more: ask the connection anew
	}
	return nil
}

// settles reports whether the batch that was written under the ticket settles messages: what is not found may be their group.
// Called with mu held.
func (l *lane) settles(ticket uint64) bool {
	for _, it := range l.line.Items() {
		if it.Ticket == ticket {
			return it.Value.encoded != nil && it.Value.encoded.HasSettlement()
		}
	}
	return false
}

// goOn wakes run when an answer has made room or something must be written again. Called with mu held.
func (l *lane) goOn() {
	if !l.awake && (l.ended || l.open != nil || l.line.Unwritten() > 0) {
		l.signal()
	}
}
