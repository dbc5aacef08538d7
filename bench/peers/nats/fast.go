// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

// Operations of fast ingest, as the reply subject carries them.
const (
	fastStart = 0
	fastAdd   = 1
	fastEnd   = 3 // ends the batch, with no message
)

// fastPublisher speaks JetStream's fast ingest: messages of one batch without end, which the server stores as they come and
// answers every so many of. The library for it (jetstreamext) tells of an answer only when the next message is added; a
// window of messages that wait for their answers would never open with it. What goes over the wire is the same.
type fastPublisher struct {
	nc      *nats.Conn
	subject string
	inbox   string
	flow    int // how many messages one answer is for
	under   *peer.UnderWay
	stop    chan struct{}
	ended   sync.WaitGroup

	// mu is held while a message is sent: the end of a batch must not overtake it.
	mu    sync.Mutex
	batch int    // its number
	sent  uint64 // messages of this batch
	reply []byte // the subject of this batch's answers, up to the sequence

	acked uint64 // of the batch that is being answered; of the goroutine that reads answers
}

// tail is how long a group that is not whole waits for more before the batch is ended, which is the only way to hear of
// it. The next message begins a new batch. It happens when the messages of a run end.
const tail = 5 * time.Millisecond

func (s *system) newFast(_ context.Context, done load.Done) (*fastPublisher, error) {
	p := &fastPublisher{
		subject: s.place,
		// Four answers a window: the server never runs out of messages while an answer is on its way. 500 is its limit.
		flow:  min(max(1, s.spec.InFlight/4), 500),
		under: peer.NewUnderWay(s.spec.InFlight, done),
		stop:  make(chan struct{}),
	}
	var err error
	if p.nc, err = s.dial(nats.ClosedHandler(func(*nats.Conn) { p.under.Fail(errClosed) })); err != nil {
		return nil, err
	}
	p.inbox = p.nc.NewInbox()
	if _, err := p.nc.Subscribe(p.inbox+".>", p.answered); err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	p.ended.Go(p.watchTheTail)
	return p, nil
}

func (p *fastPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	if err := p.under.Add(at); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	op := fastAdd
	if p.sent == 0 {
		op = fastStart
		p.batch++
		// The last part of the inbox again, since the server knows a batch by this one token.
		_, id, _ := strings.Cut(p.inbox, ".")
		p.reply = fmt.Appendf(make([]byte, 0, 128), "%s.%s-%d.%d.fail.", p.inbox, id, p.batch, p.flow)
	}
	p.sent++
	if err := p.nc.PublishRequest(p.subject, p.replyTo(p.sent, op), msg); err != nil {
		p.under.Fail(err) // the batch has a gap now: nothing behind it would be stored
	}
	return nil
}

// replyTo is called with mu held.
func (p *fastPublisher) replyTo(sequence uint64, op int) string {
	b := strconv.AppendUint(p.reply, sequence, 10) // behind what the messages of a batch have in common
	b = append(b, '.', byte('0'+op))
	return string(append(b, ".$FI"...))
}

// answered reads how far the server is in the batch, or that it has all of an ended one. Answers come in the order of
// batches. Whatever else is answered says that something was not stored.
func (p *fastPublisher) answered(m *nats.Msg) {
	var a struct {
		Type   string `json:"type"` // "ack", or nothing at the end of a batch
		Seq    uint64 `json:"seq"`
		Stream string `json:"stream"`
		Count  uint64 `json:"count"`
	}
	err := json.Unmarshal(m.Data, &a)
	switch {
	case err == nil && a.Type == "ack" && a.Seq >= p.acked:
		p.under.Tell(int(a.Seq-p.acked), nil)
		p.acked = a.Seq
	case err == nil && a.Type == "" && a.Stream != "" && a.Count >= p.acked:
		p.under.Tell(int(a.Count-p.acked), nil)
		p.acked = 0
	default:
		p.under.Fail(fmt.Errorf("fast ingest: answer %q", m.Data))
	}
}

func (p *fastPublisher) watchTheTail() {
	tick := time.NewTicker(tail)
	defer tick.Stop()
	var batch int
	var sent uint64
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		still := batch == p.batch && sent == p.sent
		batch, sent = p.batch, p.sent
		if n := p.under.Len(); still && sent > 0 && n > 0 && n < p.flow {
			if err := p.nc.PublishRequest(p.subject, p.replyTo(sent+1, fastEnd), nil); err != nil {
				p.under.Fail(err)
			}
			p.sent = 0
		}
		p.mu.Unlock()
	}
}

func (p *fastPublisher) Close() error {
	close(p.stop)
	p.ended.Wait()
	p.nc.Close()
	p.under.Fail(errClosed)
	return nil
}
