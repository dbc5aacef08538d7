// SPDX-License-Identifier: Apache-2.0

// Package recovery decides what the facts that a scan found mean: keep, cut a torn tail, drop a segment that never came to
// be, or refuse because what was flushed is damaged. It is pure: it touches nothing and refuses to guess.
package recovery

import (
	"errors"
	"fmt"

	"margay.dev/storage/segment"
)

// Action is what is to be done with a segment file.
type Action uint8

// The actions. Their order is that of severity.
const (
	Keep   Action = iota // every byte belongs to the log
	Cut                  // keep what lies before Position, cut the rest: a torn tail
	Drop                 // remove the file: its checkpoint never came to be complete
	Refuse               // flushed data is damaged: nothing is changed
	Newer                // written by a newer release: nothing is changed
)

func (a Action) String() string {
	switch a {
	case Keep:
		return "keep"
	case Cut:
		return "cut"
	case Drop:
		return "drop"
	case Refuse:
		return "refuse"
	case Newer:
		return "newer"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Verdict is a decision and its reason.
type Verdict struct {
	Action   Action
	Position int64  // where the damage begins; what is cut lies from here on
	Sequence uint64 // of the batch that should be there
	Offset   uint64 // that it should begin with
	Proven   uint64 // every batch below this sequence was certainly flushed
	Reason   string
}

// Newest decides about the newest segment. floor is a length known to be flushed from elsewhere: a later segment that
// existed (a segment is flushed whole before the next is made), or what the last user of the log knew.
//
// The rule: damage at sequence D is corruption if anything says that batch D was flushed. A batch's own word covers all
// before it, because it is written only once that word is true on this disk. Otherwise D was never acknowledged as
// flushed and goes, with all behind it: a power cut keeps unflushed blocks in any order.
func Newest(s segment.Scan, floor uint64) Verdict {
	base := s.Summary.Base
	v := Verdict{
		Position: s.Summary.Size, Sequence: s.Cursor.Sequence, Offset: s.Cursor.Offset,
		Proven: max(base, s.Flushed, floor),
	}
	if s.Damage != nil {
		v.Offset = s.Damage.Offset
	}
	if isNewer(s) {
		v.Action, v.Reason = Newer, "written by a newer release"
		return v
	}
	if s.HeaderErr != nil || s.Checkpoint == 0 {
		return withoutCheckpoint(s, v, floor)
	}
	if s.Cursor.Sequence > s.Checkpoint {
		v.Proven = max(v.Proven, s.Checkpoint) // nothing is written behind a checkpoint that is not flushed
	}
	switch flushed := max(floor, s.Beyond.Flushed); {
	case s.Damage == nil && floor > s.Cursor.Sequence:
		v.Action, v.Reason = Refuse, fmt.Sprintf("ends at sequence %d, but %d were flushed", s.Cursor.Sequence, floor)
	case s.Damage == nil:
		v.Action, v.Reason = Keep, "sound to its end"
	case flushed > s.Damage.Sequence:
		v.Action = Refuse
		v.Reason = fmt.Sprintf("%v; batches up to sequence %d were flushed", s.Damage.Err, flushed)
	default:
		v.Action, v.Reason = Cut, fmt.Sprintf("torn tail: %v", s.Damage.Err)
	}
	return v
}

// withoutCheckpoint decides about a newest segment that does not open with a whole checkpoint. It was being made when the
// power went, unless something lies behind its checkpoint: nothing is written there before the checkpoint, the file and
// its name are flushed, so then this is damage.
func withoutCheckpoint(s segment.Scan, v Verdict, floor uint64) Verdict {
	reason := fmt.Sprintf("checkpoint ends at sequence %d before it is complete", s.Cursor.Sequence)
	v.Position, v.Sequence = s.Summary.Size, s.Cursor.Sequence
	switch {
	case s.HeaderErr != nil:
		reason = s.HeaderErr.Error()
		v.Position, v.Sequence = 0, s.Summary.Base
	case s.Damage != nil:
		reason = fmt.Sprintf("checkpoint: %v", s.Damage.Err)
	}
	// A run that holds something and is not inside a checkpoint is one that does not begin with one.
	data := s.Batches > 0 && !s.Cursor.InCheckpoint() && s.Cursor.Sequence != s.Checkpoint
	switch {
	case data || s.Beyond.Data > 0:
		v.Action, v.Reason = Refuse, reason+"; batches lie behind the checkpoint, so it was flushed"
	case floor > s.Summary.Base:
		v.Action, v.Reason = Refuse, fmt.Sprintf("%s; batches up to sequence %d were flushed", reason, floor)
	default:
		v.Action, v.Reason = Drop, reason+"; nothing was written behind it"
	}
	return v
}

// Sealed decides about a segment that is followed by the one that begins at next and nextOffset. It was flushed whole
// before that one was made, so whatever is missing or wrong is damage.
func Sealed(s segment.Scan, next, nextOffset uint64) Verdict {
	v := Verdict{Position: s.Summary.Size, Sequence: s.Cursor.Sequence, Offset: s.Cursor.Offset, Proven: next}
	switch {
	case isNewer(s):
		v.Action, v.Reason = Newer, "written by a newer release"
	case s.HeaderErr != nil:
		v.Action, v.Reason = Refuse, s.HeaderErr.Error()
		v.Position, v.Sequence = 0, s.Summary.Base
	case s.Damage != nil:
		v.Action, v.Reason, v.Offset = Refuse, s.Damage.Err.Error(), s.Damage.Offset
	case s.Cursor.Sequence != next:
		v.Action, v.Reason = Refuse, fmt.Sprintf("ends at sequence %d, the next segment begins at %d", s.Cursor.Sequence, next)
	case s.Cursor.Offset != nextOffset:
		v.Action, v.Reason = Refuse, fmt.Sprintf("ends at offset %d, the next segment begins at %d", s.Cursor.Offset, nextOffset)
	default:
		v.Action, v.Reason = Keep, "sound to its end"
	}
	return v
}

func isNewer(s segment.Scan) bool {
	return errors.Is(s.HeaderErr, segment.ErrNewer) || s.Damage != nil && errors.Is(s.Damage.Err, segment.ErrNewer)
}
