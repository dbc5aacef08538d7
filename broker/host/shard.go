// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/code"
)

// Bounds of one shard's inbox. Beyond them a publish is refused as overloaded.
const (
	maxInboxBytes = 32 << 20
	maxInbox      = 16 << 10
	maxRound      = 16 << 20 // bytes that one write takes at the most
)

// Shard drives one led shard: it owns the core and its log, and is the one goroutine that steps them.
// Everything queued while a write or a flush is under way goes down in the next one: that is the group
// commit.
type Shard struct {
	Ref  Ref
	host *Host
	// opening is this one's number among those of the process: what is known of batches is known of it alone, for another
	// one may have cut the log.
	opening uint64
	cfg     shard.Config
	opts    storage.Options

	core *shard.Core
	eff  shard.Effects
	log  atomic.Pointer[logBox] // nil until the first append of a new shard
	hub  *fanout.Hub
	view atomic.Pointer[shard.View]

	mu     sync.Mutex
	inbox  []*Request
	round  []*Request // the inbox's other slice: what the last drain took
	asks   []func(*shard.Core)
	events []posted
	bytes  int
	closed *code.Error // why nothing more is taken

	wake    chan struct{}
	quit    chan struct{} // closed when the shard ends: for what it has running beside it
	stopped chan struct{}
	touched []Replier
	took    []posted // events of the step under way

	full      bool
	made      bool // the data directory remembers that the shard has held records
	owed      bool // segments below the start could not be removed
	spaceAt   time.Time
	dirty     time.Time // of the oldest unflushed write under fsync interval
	nextTick  time.Time
	interval  time.Duration // of fsync interval
	unflushed int64
	failure   error
	beside    sync.WaitGroup // what runs beside the shard's goroutine

	keyBytes int64        // of the core's index, as counted in the host's
	noRoom   bool         // the core takes no new keys
	asked    atomic.Int64 // when the core was last told that its keys are read (us)
	seen     atomic.Int64 // the latest time that was told as the shard's (us)
	saved    savedKeys
	ahead    atomic.Uint64 // the batch behind those that were last read for sharing
}

type logBox struct{ storage.Log }

// Hub is the shard's live end.
func (s *Shard) Hub() *fanout.Hub { return s.hub }

// View is the shard's state as of its last step.
func (s *Shard) View() shard.View { return *s.view.Load() }

// Now is the shard's time (us), by which records expire: never below the last append's.
//
// It does not go back while the shard is open, whatever the clock does: what a reader was told has expired is not there
// for the next one, nor for what is appended then.
func (s *Shard) Now() int64 {
	now := max(s.host.now(), s.View().LastAppend)
	for {
		seen := s.seen.Load()
		if now <= seen {
			return seen
		}
		if s.seen.CompareAndSwap(seen, now) {
			return now
		}
	}
}

// Memory says whether the log is held in memory only.
func (s *Shard) Memory() bool { return s.cfg.Memory }

// Submit queues a publish. It never waits: a full inbox refuses.
func (s *Shard) Submit(r *Request) *code.Error {
	n := len(r.Buffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return s.closed
	}
	if s.bytes > 0 && (s.bytes+n > maxInboxBytes || len(s.inbox) >= maxInbox) {
		return code.New(code.Overloaded, "shard %d holds %d bytes that wait to be written", s.Ref.Shard, s.bytes).Retry(50 * time.Millisecond)
	}
	s.inbox = append(s.inbox, r)
	s.bytes += n
	s.kick()
	return nil
}

// Ask runs f on the shard's goroutine, where the core may be read.
func (s *Shard) Ask(ctx context.Context, f func(*shard.Core)) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.closed != nil {
		defer s.mu.Unlock()
		return s.closed
	}
	if s.host.stepped != nil { // nobody else could take the turn that is waited for
		defer s.mu.Unlock()
		f(s.core)
		return nil
	}
	s.asks = append(s.asks, func(c *shard.Core) { f(c); close(done) })
	s.kick()
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-s.stopped:
		select {
		case <-done:
			return nil
		default:
			return code.New(code.Opening, "shard %d is being opened again", s.Ref.Shard).Retry(50 * time.Millisecond)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Shard) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close stops the shard once what it took is written, flushed and answered.
func (s *Shard) close(why *code.Error) {
	s.mu.Lock()
	if s.closed == nil {
		s.closed = why
	}
	s.kick()
	s.mu.Unlock()
}

// run is the shard's goroutine: it takes turns, and sleeps between them.
func (s *Shard) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		runtime.Gosched() // who is about to submit does so first, and shares this round's write and flush
		if s.turn() {
			return
		}
		if s.more() { // while this was written
			continue
		}
		timer.Reset(s.pause())
		select {
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// turn is one turn of the loop, without a goroutine or a wait of its own, so that a simulation takes the very same ones.
// It says whether it was the last.
func (s *Shard) turn() (ended bool) {
	reqs, asks, closed := s.drain()
	s.step(reqs)
	clear(s.round) // an idle shard holds no buffer that is answered
	s.publishView()
	for _, ask := range asks {
		ask(s.core)
	}
	if s.failure == nil && (closed == nil || len(reqs) > 0) {
		return false
	}
	s.finish(closed)
	close(s.stopped)
	return true
}

// drain takes what one write may hold.
func (s *Shard) drain() ([]*Request, []func(*shard.Core), *code.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.wake: // for what is taken here
	default:
	}
	asks := s.asks
	s.asks = nil
	s.took = append(s.took, s.events...)
	for i := range s.events {
		s.bytes -= sizeOfEvent(s.events[i].event)
	}
	clear(s.events)
	s.events = s.events[:0]
	n, size := 0, 0
	for n < len(s.inbox) && (n == 0 || size+len(s.inbox[n].Buffer) <= maxRound) {
		size += len(s.inbox[n].Buffer)
		n++
	}
	// Two slices take turns, so that a round makes none.
	s.round, s.inbox = s.inbox, append(s.round[:0], s.inbox[n:]...)
	s.bytes -= size
	return s.round[:n], asks, s.closed
}

// more says whether something has come since the last drain.
func (s *Shard) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inbox) > 0 || len(s.events) > 0 || len(s.asks) > 0 || s.closed != nil
}

// step feeds the core what came, and performs what it asks for.
func (s *Shard) step(reqs []*Request) {
	now := s.host.now()
	s.core.NotBefore(s.seen.Load())
	s.eff.Reset()
	if len(reqs) > 0 {
		s.makeRoom(now, sizeOf(reqs))
	}
	s.checkSpace()
	for _, r := range reqs {
		s.core.Step(now, &r.Publish, &s.eff)
	}
	s.stepEvents(now)
	if t := s.host.cfg.Clock(); !t.Before(s.nextTick) {
		s.tick(t, now)
	}
	s.countKeys(now)
	s.perform(now)
	s.flushDue(now)
}

// perform writes, flushes, answers, fans out and drops, in this order.
func (s *Shard) perform(now int64) {
	if len(s.eff.Append) > 0 && !s.write(now) {
		s.deliver()
		return
	}
	always := s.cfg.Fsync == shard.FsyncAlways && !s.cfg.Memory
	if s.eff.Flush || (always && len(s.eff.Append) > 0) {
		if s.cfg.MinAck == shard.AckNone {
			s.answer() // those who asked not to wait for the flush
		}
		if !s.flush(now) {
			s.deliver()
			return
		}
	} else if len(s.eff.Append) > 0 && s.dirty.IsZero() && !s.cfg.Memory {
		s.dirty = s.host.cfg.Clock()
	}
	s.deliver()
}

// write appends the run. What could not be written is refused and leaves no trace.
func (s *Shard) write(now int64) bool {
	l := s.log.Load()
	if l == nil {
		created, err := s.create()
		if err != nil {
			s.writeFailed(now, err)
			return false
		}
		l = created
	}
	err := l.Append(s.eff.Append...)
	st := l.State()
	s.core.Step(now, shard.Written{Length: st.Length}, &s.eff)
	if err != nil {
		// A segment that began within the run had everything before it flushed: those who wait for that are
		// answered, though what comes behind is refused.
		s.core.Step(now, shard.Flushed{Length: st.Flushed}, &s.eff)
		s.writeFailed(now, err)
		return false
	}
	var n int64
	for _, b := range s.eff.Append {
		n += int64(b.Size())
		if b.HasOffsets() {
			s.unflushed += int64(b.Count())
		}
		if b.IsCheckpointStart() {
			s.nextTick = time.Time{} // a sealed segment may be more than retention allows
		}
	}
	s.saved.written += n
	s.host.metrics.wrote(n, len(s.eff.Append))
	s.host.space.wrote(n)
	return true
}

func (s *Shard) create() (*logBox, error) {
	var l storage.Log
	if s.cfg.Memory {
		l = storage.NewMemory(s.opts)
	} else {
		if err := s.host.budget.take(); err != nil {
			return nil, err
		}
		d, err := storage.Create(s.opts)
		if err != nil {
			s.host.budget.give()
			return nil, err
		}
		l = d
	}
	box := &logBox{l}
	s.log.Store(box)
	return box, nil
}

func (s *Shard) writeFailed(now int64, err error) {
	switch {
	case errors.Is(err, storage.ErrPoisoned):
		s.lose(now, err)
	case errors.Is(err, errNoRoom):
		s.core.Step(now, shard.WriteFailed{Err: code.New(code.TooMany, "%w", err).Retry(time.Second)}, &s.eff)
	case errors.Is(err, storage.ErrFull) && s.cfg.Memory: // retention makes room at the next step
		s.nextTick = time.Time{}
		s.core.Step(now, shard.WriteFailed{Err: code.New(code.StorageFull, "the log in memory is full").Retry(spaceInterval)}, &s.eff)
	case errors.Is(err, storage.ErrFull):
		s.full, s.spaceAt = true, s.host.cfg.Clock().Add(spaceInterval)
		s.host.space.fill()
		s.core.Step(now, shard.Space{Full: true}, &s.eff)
		s.core.Step(now, shard.WriteFailed{Err: code.New(code.StorageFull, "the disk is full: nothing of the record was stored").Retry(time.Second)}, &s.eff)
	default:
		s.host.log.Error("write failed, nothing of it was kept", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
		s.core.Step(now, shard.WriteFailed{Err: code.New(code.Unavailable, "the disk refused a write: %w", err).Retry(time.Second)}, &s.eff)
	}
}

// deliver answers, fans out and drops what the core decided. Readers see the new start before its segments go.
func (s *Shard) deliver() {
	s.publishView() // before the answers: who is told that a log begins later, or ends later, must find it so
	s.answer()
	if len(s.eff.Committed) > 0 {
		v := s.core.View()
		envs := make([]*fanout.Envelope, 0, len(s.eff.Committed))
		for _, c := range s.eff.Committed {
			if r, ok := c.To.(*Request); ok && !r.Publish.Derived {
				envs = append(envs, r.envelope(s.Ref.Shard, v.Ceiling))
			} else if c.Batch.HasOffsets() {
				envs = append(envs, envelopeOf(c.Batch, s.Ref.Shard, v.Ceiling))
			}
		}
		s.hub.Publish(envs, fanout.Position{Sequence: v.Mark, Offset: v.Ceiling}, s.Now())
	}
	if s.eff.Keys != nil {
		s.buildKeys(s.eff.Keys)
	}
	if s.eff.Places != nil {
		s.buildPlaces(s.eff.Places)
	}
	if s.eff.Reclaim != nil {
		s.reclaim(*s.eff.Reclaim)
	}
	s.handOut()
	s.saveKeys()
	s.moved()
	if s.eff.Drop > 0 && s.failure == nil { // after a failed flush nobody knows whether the start is on the disk
		s.drop(s.eff.Drop)
	}
	s.host.metrics.did(&s.eff)
	s.eff.Reset()
}

func (s *Shard) drop(below uint64) {
	n, err := s.log.Load().DropBefore(below)
	if err != nil {
		s.owed, s.nextTick = true, s.host.cfg.Clock().Add(dropAgain)
		s.host.log.Error("drop segments", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
		return
	}
	s.owed = false
	s.host.metrics.reclaimed.Add(float64(n))
}

// answer hands out the answers collected so far, one send per lane.
func (s *Shard) answer() {
	for _, a := range s.eff.Answers {
		switch to := a.To.(type) {
		case *Request:
			s.tellSums(to, &a)
			if to.Lane.Answer(to, a.Ack, a.Err) {
				s.touched = append(s.touched, to.Lane)
			}
		case Waiter:
			to.Answered(a)
		}
	}
	clear(s.eff.Answers)
	s.eff.Answers = s.eff.Answers[:0]
	for i, l := range s.touched {
		l.Flush()
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}

func (s *Shard) publishView() {
	v := s.core.View()
	if was := s.view.Load(); was == nil || *was != v {
		s.view.Store(&v)
	}
}

// finish flushes what is written, ends the readers and closes the log.
func (s *Shard) finish(why *code.Error) {
	if why == nil {
		why = code.New(code.Opening, "shard %d is being opened again", s.Ref.Shard).Retry(50 * time.Millisecond)
	}
	now := s.host.now()
	s.eff.Reset()
	if s.failure == nil && s.log.Load() != nil {
		s.flush(now)
		s.deliver()
	}
	s.close(why)
	close(s.quit)
	s.beside.Wait()
	s.saveKeysAtClose()
	s.host.keyBytes.Add(-s.keyBytes)
	rest, asks, _ := s.drain()
	for len(rest) > 0 {
		for _, r := range rest {
			s.eff.Answers = append(s.eff.Answers, shard.Answer{To: r, Err: why})
		}
		rest, _, _ = s.drain()
	}
	s.answer()
	s.refuseEvents(why)
	for _, ask := range asks {
		ask(s.core)
	}
	s.publishView()
	s.hub.Close(why)
	if l := s.log.Load(); l != nil && !s.cfg.Memory { // one in memory goes on in the next opening
		if err := l.Close(); err != nil && s.failure == nil {
			s.host.log.Error("close log", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
		}
		s.host.budget.give()
	}
}

// Read returns committed batches from sequence seq on, whole and back to back. They may lie in buf.
func (s *Shard) Read(buf []byte, seq uint64, limit int) ([]byte, error) {
	l := s.log.Load()
	if l == nil {
		return nil, nil
	}
	return l.ReadTo(buf, seq, s.hub.Sequence(), limit)
}

// Find returns the sequence of the batch that holds offset.
func (s *Shard) Find(offset uint64) (uint64, error) {
	l := s.log.Load()
	if l == nil {
		return 0, nil
	}
	return l.FindOffset(offset)
}

// FindTime returns the first offset appended at or after t (us).
func (s *Shard) FindTime(t int64) (uint64, error) {
	l := s.log.Load()
	if l == nil {
		return 0, nil
	}
	return l.FindTime(t)
}
