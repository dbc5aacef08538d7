// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/queue"
	"margay.dev/broker/shard"
	"margay.dev/broker/stream"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

// mayGroup finds the shard of a request about groups, for who may consume from the log or manage it.
func (l *lane) mayGroup(id batch.LogID, n uint32) (*host.Shard, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(id))
	if err := l.allow(rl, found, token.Consume); err != nil && l.allow(rl, found, token.Manage) != nil {
		return nil, err
	}
	if err := groupsOf(infoOf(rl)); err != nil {
		return nil, err
	}
	s, refused := led(m, id, n)
	if refused != nil {
		return nil, refused
	}
	return s, nil
}

// groupCommand gives a command to its shard, which answers it. What has to be read of the log for it is read beside the lane.
func (l *lane) groupCommand(ctx context.Context, h wire.Header, body []byte) error {
	var f wire.GroupCommand
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayGroup(f.Log, f.Shard)
	if err == nil {
		err = checkCommand(&f)
	}
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	if f.Position.Kind != wire.PositionTime && f.Op != wire.GroupReschedule {
		l.command(h.Corr, s, commandOf(&f))
		return nil
	}
	return l.beside(h.Corr, func() {
		if !l.takeList(ctx) {
			return
		}
		defer l.giveList()
		x := commandOf(&f)
		if err := l.readFor(ctx, s, &f, x); err != nil {
			l.sendError(h.Corr, code.From(err))
			return
		}
		l.command(h.Corr, s, x)
	})
}

// checkCommand refuses a command that says nothing, or too much.
func checkCommand(f *wire.GroupCommand) error {
	switch {
	case f.ID == [16]byte{}:
		return code.New(code.BadRequest, "a command needs a random id")
	case f.Op == wire.GroupSeek && f.Position.Kind == wire.PositionNone:
		return code.New(code.BadRequest, "seek where to?")
	case f.Position.Kind != wire.PositionNone && f.Op != wire.GroupSeek && f.Op != wire.GroupCreate:
		return code.New(code.BadRequest, "the command takes no position")
	case (f.Op == wire.GroupCancel || f.Op == wire.GroupReschedule) && len(f.Offsets) == 0:
		return code.New(code.BadRequest, "the command names no message")
	case f.Op == wire.GroupReschedule && f.AtUs <= 0:
		return code.New(code.BadRequest, "reschedule to when?")
	}
	return nil
}

// commandOf is the command as the core has it.
func commandOf(f *wire.GroupCommand) *shard.GroupCommand {
	x := &shard.GroupCommand{}
	x.Command = group.Command{
		ID: f.ID, Op: group.CommandOp(f.Op), Name: f.Group, Group: f.GroupID, Offsets: f.Offsets, Rate: f.Rate, At: f.AtUs,
	}
	if f.HasSettings {
		x.Settings = &f.Settings
	}
	for f.Op == wire.GroupCreate && x.Group == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		x.Group = binary.LittleEndian.Uint64(b[:])
	}
	switch f.Position.Kind {
	case wire.PositionLatest:
		x.Cursor = group.CursorEnd
	case wire.PositionOffset:
		x.Cursor = min(f.Position.Offset, group.CursorEnd-1) // which means the end, and no offset
	case wire.PositionNone, wire.PositionEarliest, wire.PositionTime: // at the beginning, or it has to be looked for
	}
	return x
}

// readFor reads what a command needs of the log.
func (l *lane) readFor(ctx context.Context, s *host.Shard, f *wire.GroupCommand, x *shard.GroupCommand) (err error) {
	if f.Position.Kind == wire.PositionTime {
		if err := stream.CheckTime(uint64(f.Position.Time), l.conn.srv.cfg.Wall()); err != nil {
			return err
		}
		if x.Cursor, err = s.FindTime(f.Position.Time); err != nil {
			return host.ReadError(err)
		}
		x.Cursor = min(x.Cursor, s.View().Ceiling) // what is stored and not committed yet comes behind it
	}
	if f.Op == wire.GroupReschedule {
		ctx, cancel := context.WithTimeout(ctx, rescheduleWithin)
		defer cancel()
		if x.Messages, err = queue.Messages(ctx, s, f.Offsets); err != nil {
			return err
		}
		if len(x.Messages) == 0 {
			return code.New(code.NotFound, "the log has none of these messages")
		}
	}
	return nil
}

// rescheduleWithin bounds how long the messages of a command are read.
const rescheduleWithin = 10 * time.Second

// command gives the core a command, and answers when that is committed.
func (l *lane) command(corr uint64, s *host.Shard, x *shard.GroupCommand) {
	to := host.Func(func(a shard.Answer) {
		if a.Err != nil {
			l.sendError(corr, a.Err)
			return
		}
		l.send(corr, &wire.GroupDone{GroupID: a.Done.Group, Count: a.Done.Count, Again: a.Done.Again, Created: a.Done.Created})
	})
	x.To = to
	if refused := s.Post(x, to); refused != nil {
		l.sendError(corr, refused)
	}
}

// groupQuery answers how groups stand, beside the lane: it may have to wait for the backlog to be looked through.
func (l *lane) groupQuery(ctx context.Context, h wire.Header, body []byte) error {
	f := &wire.GroupQuery{}
	if err := wire.ParseFrame(h, f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayGroup(f.Log, f.Shard)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	return l.besideLists(ctx, h.Corr, func() (wire.Frame, error) { return framed(queue.Infos(ctx, s, f)) })
}

// browse answers with messages, beside the lane: it may be many reads of the disk.
func (l *lane) browse(ctx context.Context, h wire.Header, body []byte) error {
	f := &wire.Browse{}
	if err := wire.ParseFrame(h, f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	if err := f.Filter.Validate(); err != nil && f.Filter.Kind != wire.FilterAll {
		return l.lane.Send(l.frameError(h.Corr, code.New(code.BadRequest, "%w", err)))
	}
	if err := l.mayConsume(l.conn.claims.Load(), f.Log); err != nil { // it reads: managing is not enough
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	s, refused := led(l.conn.srv.cfg.Table.Load(), f.Log, f.Shard)
	if refused != nil {
		return l.lane.Send(l.frameError(h.Corr, refused))
	}
	return l.besideLists(ctx, h.Corr, func() (wire.Frame, error) { return framed(queue.Browse(ctx, s, f)) })
}

func framed[F wire.Frame](f F, err error) (wire.Frame, error) { return frameOrNil(f, err) }

// besideLists answers a request beside the lane with what may be large, or long in the making.
func (l *lane) besideLists(ctx context.Context, corr uint64, answer func() (wire.Frame, error)) error {
	return l.beside(corr, func() {
		if !l.takeList(ctx) {
			return
		}
		defer l.giveList()
		f, err := answer()
		if err != nil {
			l.sendError(corr, code.From(err))
			return
		}
		_ = l.answer(corr, f) // a lane that is broken has nobody to tell
	})
}
