// SPDX-License-Identifier: Apache-2.0

package group

import (
	"math"
	"slices"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// CommandOp is what a command does.
type CommandOp uint8

// The operations.
const (
	Create     CommandOp = 1
	Update     CommandOp = 2
	Delete     CommandOp = 3
	Pause      CommandOp = 4
	Resume     CommandOp = 5
	Seek       CommandOp = 6
	Reset      CommandOp = 7
	Redrive    CommandOp = 8
	Discard    CommandOp = 9
	Cancel     CommandOp = 10
	Reschedule CommandOp = 11
)

// Command changes groups. It is applied once, however often it comes.
type Command struct {
	ID       [16]byte
	Op       CommandOp
	Name     string // of the group; empty for all, of a Cancel or a Reschedule
	Group    uint64 // id that the group must have, or is to get; 0: any
	Settings *batch.GroupSettings
	Cursor   uint64    // where a Create or Seek begins
	Offsets  []uint64  // of messages; none for all dead letters, of a Redrive or a Discard
	Rate     uint32    // per second, of a Redrive; 0: at once
	At       int64     // us, of a Reschedule
	Messages []Message // of Offsets, that a Reschedule concerns
	To       any
}

// Done is what came of a command.
type Done struct {
	Group   uint64
	Count   uint64 // groups or messages that it changed
	Again   bool   // it was applied before
	Created bool
}

// command applies one. What cannot be done changes nothing.
func (s *Groups) command(x *Command) (*Done, *code.Error) {
	if was, seen := s.commands.seen[x.ID]; seen {
		return &Done{Group: was.Group, Count: was.Count, Again: true}, nil
	}
	if !s.commands.room(s.asOf) {
		return nil, code.New(code.TooMany, "the shard has had %d commands within a minute, as many as it remembers", MaxCommands).
			With(code.DetailLimit, MaxCommands).Retry(retryCommand)
	}
	done, err := s.do(x)
	if err != nil {
		return nil, err
	}
	s.add(batch.Command{ID: x.ID, At: s.asOf, Group: done.Group, Count: done.Count})
	return done, nil
}

func (s *Groups) do(x *Command) (*Done, *code.Error) {
	if x.Op == Create {
		return s.create(x)
	}
	if x.Name == "" && (x.Op == Cancel || x.Op == Reschedule) {
		return s.everywhere(x)
	}
	g, err := s.named(x.Name)
	if err != nil {
		return nil, err
	}
	if x.Group != 0 && x.Group != g.id {
		return nil, code.New(code.Conflict, "group %q is another one now: it was deleted and created again", x.Name)
	}
	n, err := s.doTo(g, x)
	if err != nil {
		return nil, err
	}
	return &Done{Group: g.id, Count: n}, nil
}

func (s *Groups) everywhere(x *Command) (*Done, *code.Error) {
	if len(s.byID) == 0 {
		return nil, code.New(code.NotFound, "the log has no group: there is nobody to whom the message would be handed")
	}
	done := &Done{}
	var refused *code.Error
	for _, g := range s.inOrder() {
		n, err := s.doTo(g, x)
		if err != nil {
			refused = err
		}
		done.Count += n
	}
	if done.Count == 0 && refused != nil {
		return nil, refused
	}
	return done, nil
}

func (s *Groups) doTo(g *Group, x *Command) (uint64, *code.Error) {
	switch x.Op {
	case Update, Pause, Resume:
		return 1, s.update(g, x)
	case Delete:
		s.delete(g)
		return 1, nil
	case Seek:
		cursor, err := s.cursorAt(x.Cursor)
		if err != nil {
			return 0, err
		}
		s.seek(g, cursor)
		return 1, nil
	case Reset:
		cursor, err := s.cursorAt(0)
		if err != nil {
			return 0, err
		}
		for _, o := range sortedKeys(g.dead) {
			s.bury(g.dead[o], batch.DeadDiscarded)
		}
		s.seek(g, cursor)
		return 1, nil
	case Redrive:
		return s.redrive(g, x)
	case Discard:
		return s.eachDead(g, x, func(d batch.Dead, _ int) { s.bury(d, batch.DeadDiscarded) })
	case Cancel:
		return s.cancel(g, x)
	case Reschedule:
		return s.reschedule(g, x)
	case Create:
	}
	return 0, code.New(code.BadRequest, "group command %d is unknown", x.Op)
}

func (s *Groups) create(x *Command) (*Done, *code.Error) {
	if g := s.byName[x.Name]; g != nil {
		return &Done{Group: g.id}, nil
	}
	if len(s.byID) >= MaxGroups {
		return nil, code.New(code.TooMany, "the log has %d groups, as many as it may", len(s.byID)).With(code.DetailLimit, MaxGroups)
	}
	if x.Group == 0 || s.byID[x.Group] != nil {
		return nil, code.New(code.BadRequest, "a group needs an id that no other has")
	}
	cursor, err := s.cursorAt(x.Cursor)
	if err != nil {
		return nil, err
	}
	settings := batch.DefaultGroupSettings()
	if x.Settings != nil {
		settings = *x.Settings
	}
	if err := settings.Validate(); err != nil {
		return nil, code.New(code.BadRequest, "group %q: %w", x.Name, err)
	}
	s.add(batch.Group{
		ID: x.Group, Name: x.Name, Created: s.asOf, Updated: s.asOf, Settings: settings, Cursor: cursor,
		Totals: batch.GroupTotals{Base: s.base(cursor)},
	})
	s.skip(x.Group, cursor)
	s.sweep.see(s.asOf)
	return &Done{Group: x.Group, Count: 1, Created: true}, nil
}

func (s *Groups) update(g *Group, x *Command) *code.Error {
	settings := *g.settings
	switch x.Op {
	case Pause:
		settings.Paused = true
	case Resume:
		settings.Paused = false
	default:
		if x.Settings == nil {
			return code.New(code.BadRequest, "the settings of group %q are to be changed, and to what is not said", g.name)
		}
		settings = *x.Settings
		settings.Paused = g.settings.Paused // Pause and Resume say that: a change of something else lets nothing out
		if err := settings.Validate(); err != nil {
			return code.New(code.BadRequest, "group %q: %w", g.name, err)
		}
	}
	e := g.entry()
	e.Settings, e.Updated = settings, s.asOf
	keyed := g.keyed()
	ordered := g.settings.OrderByKey
	s.add(e)
	if keyed != g.keyed() || ordered != g.settings.OrderByKey {
		s.rekey(g)
	}
	return nil
}

// rekey begins anew under another order: what is out keeps its key, as far as that was known.
func (s *Groups) rekey(g *Group) { s.again(g) }

func (s *Groups) delete(g *Group) {
	e := g.entry()
	e.Removed = true
	s.endAll(g)
	s.add(e)
	if g.work == nil {
		return
	}
	s.fx.Gone = append(s.fx.Gone, s.dissolve(g)...)
	s.rest(g)
}

// dissolve ends what the consumers of a group have out, and returns them: they are not its consumers any more.
func (s *Groups) dissolve(g *Group) []*Consumer {
	s.endAll(g)
	gone := g.work.consumers
	for _, c := range gone {
		c.group = nil
	}
	g.work.consumers, g.work.lookedAt = nil, 0
	return gone
}

// endAll ends every claim of a group.
func (s *Groups) endAll(g *Group) {
	if g.work == nil {
		return
	}
	for _, o := range sortedKeys(g.work.claims) {
		s.endClaim(g, o, g.work.claims[o])
	}
}

// seek makes a group begin anew at an offset.
func (s *Groups) seek(g *Group, cursor uint64) {
	s.endAll(g)
	e := g.entry()
	e.Resets++
	e.Updated, e.Cursor = s.asOf, cursor
	e.Totals = batch.GroupTotals{Base: s.base(cursor)}
	s.add(e)
	s.skip(g.id, cursor)
	s.forgetFreed(g)
	s.again(g)
	s.sweep.see(s.asOf)
}

// bury removes a dead letter.
func (s *Groups) bury(d batch.Dead, how batch.DeadRemoved) {
	d.Removed, d.Error = how, ""
	s.add(d)
}

// eachDead does something to the dead letters that a command names, all of them when it names none.
func (s *Groups) eachDead(g *Group, x *Command, f func(d batch.Dead, i int)) (uint64, *code.Error) {
	offsets := x.Offsets
	if len(offsets) == 0 {
		offsets = sortedKeys(g.dead)
	}
	n := 0
	for _, o := range offsets {
		if d, ok := g.dead[o]; ok {
			f(d, n)
			n++
		}
	}
	if n == 0 && len(x.Offsets) > 0 {
		return 0, code.New(code.NotFound, "group %q has none of these dead letters", g.name)
	}
	return uint64(n), nil
}

func (s *Groups) redrive(g *Group, x *Command) (uint64, *code.Error) {
	return s.eachDead(g, x, func(d batch.Dead, i int) {
		due := s.asOf
		if x.Rate > 0 {
			due += int64(i) * 1_000_000 / int64(x.Rate)
		}
		s.bury(d, batch.DeadRedriven)
		s.park(g, batch.Attempt{
			Group: g.id, Offset: d.Offset, Due: due, AppendTime: d.AppendTime, Key: d.Key, Priority: d.Priority, Error: d.Error,
		})
	})
}

// park makes a message wait beside the cursor.
func (s *Groups) park(g *Group, a batch.Attempt) {
	if g.work != nil {
		g.work.later.drop(func(o uint64) bool { return o == a.Offset })
	}
	s.add(a)
	if g.work != nil && g.work.loaded {
		s.takeParked(g, a)
	}
}

// open refuses what is to be done to a message that somebody works on, or that is not outstanding.
func (s *Groups) open(g *Group, offset uint64) *code.Error {
	switch {
	case offset >= s.end:
		return code.New(code.NotFound, "there is no message %d", offset)
	case g.work != nil && s.claimed(g, offset):
		return code.New(code.Conflict, "somebody of group %q works on message %d", g.name, offset)
	case !g.outstanding(offset):
		return code.New(code.NotFound, "message %d is not outstanding in group %q: it is settled, or dead", offset, g.name)
	}
	return nil
}

func (s *Groups) cancel(g *Group, x *Command) (uint64, *code.Error) {
	var refused *code.Error
	var gone []batch.OffsetRange
	for _, o := range x.Offsets {
		if err := s.open(g, o); err != nil {
			refused = err
			continue
		}
		if a := g.parked[o]; a.Retry {
			s.freeLater(g, a.Key)
		}
		gone = append(gone, batch.OffsetRange{From: o, To: o + 1})
	}
	if len(gone) == 0 {
		return 0, refused
	}
	gone = joined(gone)
	n := uint64(0)
	for _, r := range gone {
		n += r.To - r.From
	}
	s.add(batch.Settled{Group: g.id, How: batch.SettledCancelled, Ranges: gone})
	if g.work != nil {
		g.work.later.drop(func(o uint64) bool {
			_, found := slices.BinarySearchFunc(gone, o, func(r batch.OffsetRange, o uint64) int {
				switch {
				case r.To <= o:
					return -1
				case r.From > o:
					return 1
				}
				return 0
			})
			return found
		})
	}
	return n, nil
}

// reschedule puts messages off, or brings them forward: they are handed out at a time, and until then wait beside the cursor.
func (s *Groups) reschedule(g *Group, x *Command) (uint64, *code.Error) {
	var refused *code.Error
	n := uint64(0)
	for i := range x.Messages {
		m := &x.Messages[i]
		if err := s.open(g, m.Offset); err != nil {
			refused = err
			continue
		}
		if m.Expires != 0 && m.Expires <= x.At {
			refused = code.New(code.BadRequest, "message %d expires before it would be handed out", m.Offset)
			continue
		}
		a := batch.Attempt{
			Group: g.id, Offset: m.Offset, Due: x.At, Expires: m.Expires, AppendTime: m.AppendTime, Key: m.Key, Priority: m.Priority,
		}
		if was, parked := g.parked[m.Offset]; parked {
			a = was
			a.Due = x.At
		}
		s.park(g, a)
		n++
	}
	if n == 0 {
		return 0, refused
	}
	return n, nil
}

// CursorEnd is where a group begins that wants nothing of what is there.
const CursorEnd = math.MaxUint64

// cursorAt is where a group can begin: not before the log, but for what was carried from there.
func (s *Groups) cursorAt(cursor uint64) (uint64, *code.Error) {
	first := s.first()
	switch {
	case cursor == CursorEnd:
		return s.end, nil
	case cursor > s.end:
		return 0, code.New(code.OutOfRange, "a group cannot begin at offset %d: the log holds %d up to %d", cursor, first, s.end).
			With(code.DetailEarliest, first).With(code.DetailLatest, s.end)
	case cursor >= first || s.carried == nil:
		return max(cursor, first), nil
	case !s.carried.Ready():
		return 0, code.New(code.Opening, "the shard reads its log to learn what was carried").Retry(20 * time.Millisecond)
	}
	at := first
	s.carried.Below(first, func(m Message) bool {
		if m.Offset >= cursor {
			at = m.Offset
		}
		return m.Offset < cursor
	})
	return at, nil
}

// skip passes over what lies between a cursor and the beginning of the log and was not carried: it is gone.
func (s *Groups) skip(group, cursor uint64) {
	first := s.first()
	if s.carried == nil || cursor >= first {
		return
	}
	var gone []batch.OffsetRange
	at := cursor
	s.carried.Below(first, func(m Message) bool {
		if m.Offset > at {
			gone = append(gone, batch.OffsetRange{From: at, To: m.Offset})
		}
		at = max(at, m.Offset+1)
		return true
	})
	if at < first {
		gone = append(gone, batch.OffsetRange{From: at, To: first})
	}
	if len(gone) > 0 {
		s.add(batch.Settled{Group: group, How: batch.SettledState, Ranges: gone})
	}
}

// base is where the counting of a group begins that begins at a cursor: so many offsets lie below the end as there are
// messages for it.
func (s *Groups) base(cursor uint64) uint64 {
	first := s.first()
	if s.carried == nil || cursor >= first {
		return cursor
	}
	base := first
	s.carried.Below(first, func(m Message) bool {
		if m.Offset >= cursor {
			base--
		}
		return true
	})
	return base
}
