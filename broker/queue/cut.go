// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// maxRun is how many messages a frame has at the most, unless they are a whole batch.
const maxRun = 4096

// keepSlice is the largest buffer that is kept for the next slice.
const keepSlice = 1 << 20

// cutter is what cutting reuses.
type cutter struct {
	offsets  []uint64
	slice    []byte
	attempts []wire.MessageAttempt
	head     []byte
	released map[place]struct{} // messages that were given back because they could not be found
}

type place struct {
	m      *member
	offset uint64
}

// maxReleased is how many of those are remembered.
const maxReleased = 1024

// first says whether a message is given back for the first time. One that comes again and cannot be found is left to its
// claim's end: it would go around as fast as it can.
func (c *cutter) first(at place) bool {
	if _, again := c.released[at]; again {
		return false
	}
	if c.released == nil || len(c.released) >= maxReleased {
		c.released = map[place]struct{}{}
	}
	c.released[at] = struct{}{}
	return true
}

// writeRun writes the first of a hand's messages that fit into one frame, and takes them off the hand. Bytes is what that
// came to. An error is the lane's.
func (l *Lane) writeRun(h *hand) (bytes int, err error) {
	n, b, slice, err := l.cut.run(h.m, h.Items)
	if err != nil {
		l.unreadable(h, n, err)
		return 0, nil
	}
	c := &l.cut
	c.attempts = c.attempts[:0]
	for i := range h.Items[:n] {
		if a := h.Items[i].Attempt; a != 1 {
			c.attempts = append(c.attempts, wire.MessageAttempt{Index: uint32(i), Attempt: a})
		}
	}
	f := wire.Messages{
		Shard: h.m.id, Generation: h.m.generation, Resets: h.Resets, HandOut: h.Items[0].HandOut, Attempts: c.attempts, Slice: slice, Batch: b,
	}
	c.head = f.AppendHead(c.head[:0])
	l.mu.Lock()
	// Before they are written: of a lane that breaks meanwhile the consumer may have read all the same.
	h.m.delivered = max(h.m.delivered, h.Items[n-1].HandOut)
	l.mu.Unlock()
	l.pool.writing(n, len(b))
	l.cfg.Stats.wrote(n, len(b))
	h.Items = h.Items[n:]
	return len(c.head) + len(b), l.write(c.head, b)
}

// run cuts the first of these messages that fit into one frame: as many as lie in one batch, in its order and with hand-outs
// that follow each other. N is how many they are, or, with an error, how many it is about.
func (c *cutter) run(m *member, items []group.Handed) (n int, b []byte, slice bool, err error) {
	x, at, err := m.last.find(m.shard, items[0].Offset, items[0].Sequence)
	if err != nil {
		return 1, nil, false, err
	}
	if x.IsCarried() {
		cut, found, err := batch.SliceCarried(x.Batch, items[0].Offset)
		if err == nil && !found {
			err = errMoved
		}
		return 1, cut, true, err
	}
	if !has(x, items[0].Offset) {
		return 1, nil, false, errMoved
	}
	next := x.NextOffset()
	for n = 1; n < len(items); n++ {
		i, last := &items[n], &items[n-1]
		if i.HandOut != last.HandOut+1 || i.Offset <= last.Offset || i.Offset >= next || i.Sequence != 0 && i.Sequence != at {
			break
		}
	}
	if n == x.Count() && !x.HasSettlement() {
		return n, x.Batch, false, nil
	}
	n = min(n, maxRun)
	c.offsets = c.offsets[:0]
	for i := range items[:n] {
		c.offsets = append(c.offsets, items[i].Offset)
	}
	if cap(c.slice) > keepSlice {
		c.slice = nil
	}
	cut, err := x.AppendOffsets(c.slice[:0], c.offsets)
	if err == nil {
		c.slice = cut
	}
	return n, cut, true, err
}

// maxBetween is how many control batches may lie between two batches of records, for the second to be found from the first.
const maxBetween = 7

// last is the batch of records that was last read.
type last struct{ sequence, base, next uint64 }

// has says whether a batch has a record at this offset, which it was given there.
func has(x *host.Shared, offset uint64) bool {
	return x.HasOffsets() && offset >= x.BaseOffset() && offset < x.NextOffset()
}

// find reads the batch that holds a message; the sequence is 0 when it is not known. Most follow on the one before, and need
// not be looked for.
func (l *last) find(s Shard, offset, sequence uint64) (x *host.Shared, at uint64, err error) {
	at = sequence
	switch {
	case at != 0:
	case offset >= l.base && offset < l.next:
		at = l.sequence
	case offset == l.next && l.next > 0:
		for at = l.sequence + 1; at <= l.sequence+maxBetween+1; at++ {
			if x := s.KeptBatch(at); x != nil && has(x, offset) {
				*l = last{at, x.BaseOffset(), x.NextOffset()}
				return x, at, nil
			}
		}
		for at = l.sequence + 1; at <= l.sequence+2; at++ { // a control batch may lie between
			x, err := s.SharedBatch(at)
			if err != nil {
				break
			}
			if has(x, offset) {
				*l = last{at, x.BaseOffset(), x.NextOffset()}
				return x, at, nil
			}
		}
		at = 0
	}
	if at == 0 {
		if at, err = s.Find(offset); err != nil {
			return nil, 0, err
		}
	}
	if x, err = s.SharedBatch(at); err == nil && x.HasOffsets() {
		*l = last{at, x.BaseOffset(), x.NextOffset()}
	}
	return x, at, err
}

var errMoved = errors.New("the message is not where it was")

// unreadable does away with messages that cannot be written, the first n of the hand.
func (l *Lane) unreadable(h *hand, n int, why error) {
	m := h.m
	switch moved := errors.Is(why, storage.ErrDropped) || errors.Is(why, errMoved); {
	case moved && (h.Items[0].Sequence != 0 || m.last != last{}):
		h.Items[0].Sequence, m.last = 0, last{} // look for it by its offset
		return
	case moved:
		// Retention took it, and then nobody has a claim on it; or it was moved, and the core knows where to.
		l.cfg.Stats.Unreadable.Add(uint64(n))
		if l.cut.first(place{m, h.Items[0].Offset}) {
			m.settle(h, n, group.Token{Op: group.Release})
		}
	case errors.Is(why, batch.ErrCompression):
		l.cfg.Stats.Unreadable.Add(uint64(n))
		m.settle(h, n, group.Token{Op: group.Reject, Reason: "it cannot be unpacked: its producer compressed it wrongly"})
	default:
		l.fail(m, host.ReadError(why))
		return // it is over, and so is what was handed out
	}
	l.pool.handed(-n)
	h.Items = h.Items[n:]
}

// settle gives the first messages of a hand another end than being written. One that the core does not hear of ends with
// its claim.
func (m *member) settle(h *hand, n int, how group.Token) {
	st := &group.Settlement{Group: h.Group, Resets: h.Resets, Generation: m.generation}
	for i := range h.Items[:n] {
		how.HandOut, how.Offset = h.Items[i].HandOut, h.Items[i].Offset
		st.Tokens = append(st.Tokens, how)
	}
	_ = m.shard.Post(&shard.Settle{List: []*group.Settlement{st}}, nil)
}

// fail ends the lane's part of a shard whose log cannot be read.
func (l *Lane) fail(m *member, why *code.Error) {
	l.mu.Lock()
	m.over = true
	l.mu.Unlock()
	l.failing = append(l.failing, failing{m, why})
}

type failing struct {
	m   *member
	why *code.Error
}

// leaveFailed leaves the groups of shards that cannot be read, and says whether one of them has to be told again.
func (l *Lane) leaveFailed() (again bool) {
	left := l.failing[:0]
	for _, f := range l.failing {
		if f.m.leave(false, nil) {
			f.m.closed(f.why) // unless the shard was closed meanwhile, and that is why
		} else {
			left = append(left, f)
		}
	}
	clear(l.failing[len(left):])
	l.failing = left
	return len(left) > 0
}
