// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"errors"
	"testing"

	"margay.dev/storage/recovery"
	"margay.dev/storage/segment"
)

var errTorn = errors.New("checksum does not match")

// facts of a segment that begins at sequence 10, has a checkpoint of one batch, and is sound up to sequence 20.
func facts(change func(*segment.Scan)) segment.Scan {
	s := segment.Scan{
		Size: 5000, Batches: 10, Checkpoint: 11, CheckpointEnd: 200, Flushed: 15,
		Summary: segment.Summary{Base: 10, Next: 20, Size: 5000},
		Cursor:  segment.Cursor{Sequence: 20, Offset: 100},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func damaged(beyond segment.Beyond) func(*segment.Scan) {
	return func(s *segment.Scan) {
		s.Summary.Size = 4000
		s.Damage = &segment.Damage{Position: 4000, Sequence: 20, Offset: 100, Err: errTorn}
		s.Beyond = beyond
	}
}

// unborn is a segment whose checkpoint is not whole.
func unborn(beyond segment.Beyond) func(*segment.Scan) {
	return func(s *segment.Scan) {
		*s = segment.Scan{
			Size: 300, Summary: segment.Summary{Base: 10, Next: 10, Size: 48}, Cursor: segment.Cursor{Sequence: 10},
			Damage: &segment.Damage{Position: 48, Sequence: 10, Err: errTorn}, Beyond: beyond,
		}
	}
}

func TestNewest(t *testing.T) {
	for _, c := range []struct {
		name   string
		facts  func(*segment.Scan)
		floor  uint64
		want   recovery.Action
		proven uint64
	}{
		{"sound", nil, 0, recovery.Keep, 15},
		{"sound, nothing told flushed: the checkpoint is, since something lies behind it", func(s *segment.Scan) { s.Flushed = 0 }, 0, recovery.Keep, 11},
		{
			"only a checkpoint: it may never have been flushed",
			func(s *segment.Scan) { s.Flushed, s.Cursor.Sequence, s.Batches = 0, 11, 1 }, 0, recovery.Keep, 10,
		},
		{"sound, more known from elsewhere", nil, 18, recovery.Keep, 18},
		{"ends too early for what is known", nil, 21, recovery.Refuse, 21},
		{"torn, nothing behind", damaged(segment.Beyond{}), 0, recovery.Cut, 15},
		{"torn, later batches that do not know of it", damaged(segment.Beyond{Batches: 3, Data: 3, Flushed: 20}), 0, recovery.Cut, 15},
		{"a later batch says that it was flushed", damaged(segment.Beyond{Batches: 1, Data: 1, Flushed: 21}), 0, recovery.Refuse, 15},
		{"the last user knew that it was flushed", damaged(segment.Beyond{}), 21, recovery.Refuse, 21},
		{"the last user knew only what lies before it", damaged(segment.Beyond{}), 20, recovery.Cut, 20},
		{"unborn", unborn(segment.Beyond{}), 0, recovery.Drop, 10},
		{"unborn, other parts of its checkpoint are sound", unborn(segment.Beyond{Batches: 2, Flushed: 10}), 0, recovery.Drop, 10},
		{"checkpoint damaged under records", unborn(segment.Beyond{Batches: 1, Data: 1}), 0, recovery.Refuse, 10},
		{"checkpoint damaged and known to be flushed", unborn(segment.Beyond{}), 11, recovery.Refuse, 11},
		{"empty file", func(s *segment.Scan) {
			*s = segment.Scan{Summary: segment.Summary{Base: 10, Next: 10}, Cursor: segment.Cursor{Sequence: 10}, HeaderErr: segment.ErrShort}
		}, 0, recovery.Drop, 10},
		{"header damaged, only a checkpoint behind it", func(s *segment.Scan) {
			s.HeaderErr, s.Cursor.Sequence, s.Batches, s.Flushed = segment.ErrChecksum, 11, 1, 10
		}, 0, recovery.Drop, 10},
		{"header damaged, records behind it", func(s *segment.Scan) { s.HeaderErr = segment.ErrChecksum }, 0, recovery.Refuse, 15},
		{"does not open with a checkpoint", func(s *segment.Scan) { s.Checkpoint = 0 }, 0, recovery.Refuse, 15},
		{"newer header", func(s *segment.Scan) { s.HeaderErr = segment.ErrNewer }, 0, recovery.Newer, 15},
		{"newer batch at the end", func(s *segment.Scan) {
			damaged(segment.Beyond{})(s)
			s.Damage.Err = segment.ErrNewer
		}, 0, recovery.Newer, 15},
	} {
		v := recovery.Newest(facts(c.facts), c.floor)
		if v.Action != c.want || v.Proven != c.proven {
			t.Errorf("%s: %v, proven %d (%s), want %v, %d", c.name, v.Action, v.Proven, v.Reason, c.want, c.proven)
		}
	}
}

func TestSealed(t *testing.T) {
	for _, c := range []struct {
		name         string
		facts        func(*segment.Scan)
		next, offset uint64
		want         recovery.Action
	}{
		{"sound", nil, 20, 100, recovery.Keep},
		{"cut at a batch boundary", nil, 21, 103, recovery.Refuse},
		{"offsets do not meet", nil, 20, 101, recovery.Refuse},
		{"damaged, although nothing says that it was flushed", damaged(segment.Beyond{}), 20, 100, recovery.Refuse},
		{"header damaged", func(s *segment.Scan) { s.HeaderErr = segment.ErrMagic }, 20, 100, recovery.Refuse},
		{"newer", func(s *segment.Scan) { s.HeaderErr = segment.ErrNewer }, 20, 100, recovery.Newer},
	} {
		if v := recovery.Sealed(facts(c.facts), c.next, c.offset); v.Action != c.want {
			t.Errorf("%s: %v (%s), want %v", c.name, v.Action, v.Reason, c.want)
		}
	}
}
