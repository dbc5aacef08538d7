// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// rare is how long a writer has had nothing to do when it is not kept.
const rare = time.Second

// keepBuffer is the largest outbound buffer that is kept for another time.
const keepBuffer = 2 << 20

// outbound is the queue of Send and the state of the goroutine that empties it.
type outbound struct {
	mu sync.Mutex
	// queued fills while the writer writes what was queued before, busy bytes of it. Both come from the
	// pool and go back there, so an idle lane holds neither; queued is nil when empty.
	queued *[]byte
	busy   int
	// awake: the writer runs or has been woken, so nobody needs to wake it again.
	awake     bool
	started   bool
	finishing bool
	err       error
	// idleAt is when the writer last had nothing to do. Often: it was woken soon after. One that is not needed often ends
	// and is started again, because most lanes of most connections say something twice and then wait for hours.
	idleAt time.Time
	often  bool

	wake    chan struct{}
	stopped chan struct{}
}

var outBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Send queues whole frames, all or none of them, and returns; one goroutine of the lane writes what has
// gathered in one piece. It fails with ErrLaneFull when the queue would exceed Config.OutboundBytes
// (frames that alone exceed it are taken when nothing else is queued), and with the lane's error when
// it is finished or broken. The caller may reuse the frames.
func (l *Lane) Send(frames ...[]byte) error {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	o := &l.out
	o.mu.Lock()
	if err := l.admit(size); err != nil {
		o.mu.Unlock()
		return err
	}
	for _, f := range frames {
		*o.queued = append(*o.queued, f...)
	}
	l.shared.cfg.Stats.Outbound.Add(int64(size))
	l.wakeWriter()
	return nil
}

// SendFrame is Send of one frame, encoded straight into the queue.
func (l *Lane) SendFrame(corr uint64, f wire.Frame) error {
	o := &l.out
	o.mu.Lock()
	size := wire.HeaderSize + f.Size()
	if err := l.admit(size); err != nil {
		o.mu.Unlock()
		return err
	}
	l.shared.cfg.Stats.Outbound.Add(int64(size))
	*o.queued = wire.AppendFrame(*o.queued, corr, f)
	l.wakeWriter()
	return nil
}

// admit checks the bound and sees that there are a buffer and a writer. Called with out.mu held.
func (l *Lane) admit(size int) error {
	o := &l.out
	if o.err != nil {
		return o.err
	}
	if o.finishing {
		return code.New(code.Closed, "lane send: the lane is finished")
	}
	held := o.busy
	if o.queued != nil {
		held += len(*o.queued)
	}
	if held > 0 && held+size > l.shared.cfg.OutboundBytes {
		return ErrLaneFull
	}
	if !o.started {
		o.stopped = make(chan struct{})
		if !l.shared.spawn(l.writeLoop) {
			return code.New(code.Closed, "lane send: the connection is closed")
		}
		o.started, o.awake, o.often = true, true, time.Since(o.idleAt) < rare
	}
	if o.queued == nil {
		o.queued = outBuffers.Get().(*[]byte)
	}
	return nil
}

// wakeWriter releases out.mu and wakes the writer if nobody has.
func (l *Lane) wakeWriter() {
	o := &l.out
	wake := !o.awake
	o.awake = true
	o.mu.Unlock()
	if wake {
		o.wake <- struct{}{} // has room: only who sets awake sends, and the writer takes it before it clears awake
	}
}

// writeLoop owns the outbound direction until it is not needed for a while, or to the end of the lane.
func (l *Lane) writeLoop() {
	o := &l.out
	defer close(o.stopped)
	for {
		o.mu.Lock()
		batch := o.queued
		o.queued, o.busy = nil, 0
		if o.err != nil || batch == nil && o.finishing {
			o.mu.Unlock()
			l.recycle(batch)
			l.endStream()
			return
		}
		if batch == nil {
			stay := o.often
			o.awake, o.started, o.idleAt = false, stay, time.Now()
			o.mu.Unlock()
			if !stay {
				return
			}
			select {
			case <-o.wake:
				o.often = time.Since(o.idleAt) < rare
			case <-l.stream.Done(): // nothing can be written any more, and maybe nobody will close the lane
				_, err := l.stream.Write(nil, false) // tells why
				l.fail(cmp.Or(err, error(code.Closed)))
			}
			continue
		}
		o.busy = len(*batch)
		o.mu.Unlock()
		_ = l.Write(*batch) // a failure is recorded, and ends the loop at its next turn
		l.recycle(batch)
	}
}

func (l *Lane) recycle(b *[]byte) {
	if b == nil {
		return
	}
	l.shared.cfg.Stats.Outbound.Add(-int64(len(*b)))
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		outBuffers.Put(b)
	}
}

// endStream finishes the outbound direction once everything queued is written, or cannot be.
func (l *Lane) endStream() {
	l.turn <- struct{}{}
	_ = l.stream.Finish() // fails only on a stream that is cancelled
	<-l.turn
}

// fail records why nothing can be written any more.
func (l *Lane) fail(err error) {
	l.out.mu.Lock()
	if l.out.err == nil {
		l.out.err = err
	}
	l.out.mu.Unlock()
}

// Write writes the parts, in order and with nothing between them, and returns when the transport has
// them. It may wait for the peer, but not longer than Config.WriteTimeout without progress; then the
// lane is reset. A peer that stops reading may have said why: after an error, read what it has sent. A
// caller that uses both Write and Send sees no order between the two.
func (l *Lane) Write(parts ...[]byte) error {
	last := len(parts) - 1
	for last >= 0 && len(parts[last]) == 0 {
		last--
	}
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	for i, p := range parts[:last+1] {
		n, err := l.stream.Write(p, i < last)
		l.shared.cfg.Stats.BytesOut.Add(uint64(n))
		if err != nil {
			l.fail(err)
			if errors.Is(err, code.Timeout) {
				l.stream.Cancel(code.Timeout)
			} // otherwise the outbound direction has ended already, and the peer's last answer may be on its way
			return err
		}
	}
	return nil
}

// finish ends the outbound direction behind what is queued and waits until it is done.
func (l *Lane) finish() error {
	o := &l.out
	o.mu.Lock()
	first := !o.finishing
	o.finishing = true
	started := o.started
	if started {
		l.wakeWriter()
		<-o.stopped
	} else {
		o.mu.Unlock()
		if first {
			l.endStream()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
