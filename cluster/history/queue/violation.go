// SPDX-License-Identifier: Apache-2.0

package queue

import "fmt"

// Kind says what a history breaks.
type Kind uint8

const (
	// Overlap: a message was handed out while somebody else held it.
	Overlap Kind = iota + 1
	// Stolen: a claim was settled after the message had been handed out to somebody else.
	Stolen
	// TwoEnds: a message came to more than one end.
	TwoEnds
	// Lost: a message that was acknowledged, or handed out, has come to no end and is not there either.
	Lost
	// Undone: a message is handed out, or there, after its settlement was acknowledged.
	Undone
	// Forgotten: an attempt that had ended was not counted, or not any more.
	Forgotten
	// Miscounted: an attempt was counted that was none.
	Miscounted
	// Beyond: a message was handed out more often than its group allows.
	Beyond
	// Early: a message was handed out before its time.
	Early
	// Late: a message was handed out after its time to live.
	Late
	// Denied: a settlement was refused because its claim had ended, and nothing had ended it.
	Denied
	// Paused: a message was handed out by a group that pauses.
	Paused
	// Overfull: a consumer got more messages than it wanted.
	Overfull
	// KeyOrder: a message was handed out while one of its key was out or waited, or before an earlier one.
	KeyOrder
	// Repeated: a hand-out number was given twice, or fell.
	Repeated
	// Dead: a dead letter is there for a reason that it does not have.
	Dead
	// Stored: a message whose answer said "certainly not applied" is there.
	Stored
	// Phantom: a message is there that nobody pushed.
	Phantom
	// Altered: a message is not what was pushed there.
	Altered
	// Twice: one push is there more than once.
	Twice
	// Clash: two pushes were acknowledged as one message.
	Clash
	// Unusable: the history itself cannot be judged.
	Unusable
)

// kinds holds each kind's name and the guarantee of docs/guarantees.md that it breaks.
var kinds = [...]struct{ name, guarantee string }{
	Overlap:    {"overlap", "S8"},
	Stolen:     {"stolen", "S8"},
	TwoEnds:    {"two ends", "S8"},
	Lost:       {"lost", "S8"},
	Undone:     {"undone", "S9"},
	Forgotten:  {"forgotten", "Q2"},
	Miscounted: {"miscounted", "Q2"},
	Beyond:     {"beyond", "Q2"},
	Early:      {"early", "Q3"},
	Late:       {"late", "Q3"},
	Denied:     {"denied", "Q1"},
	Paused:     {"paused", "Q6"},
	Overfull:   {"overfull", "Q5"},
	KeyOrder:   {"key order", "Q4"},
	Repeated:   {"repeated", "Q1"},
	Dead:       {"dead", "Q2"},
	Stored:     {"stored", "R5"},
	Phantom:    {"phantom", "S3"},
	Altered:    {"altered", "S2"},
	Twice:      {"twice", "S7"},
	Clash:      {"clash", "S3"},
	Unusable:   {"unusable history", ""},
}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kinds) {
		return "invalid"
	}
	return kinds[k].name
}

// Guarantee returns the id of the broken promise, empty for Unusable.
func (k Kind) Guarantee() string {
	if int(k) >= len(kinds) {
		return ""
	}
	return kinds[k].guarantee
}

// Violation is one broken promise.
type Violation struct {
	Kind    Kind
	Group   string
	Message Message
	Detail  string
}

func (v Violation) String() string {
	id := v.Kind.Guarantee()
	if id == "" {
		id = "-"
	}
	return fmt.Sprintf("%s %s: group %q, message %s: %s", id, v.Kind, v.Group, v.Message, v.Detail)
}

func (p *push) String() string {
	return fmt.Sprintf("%s pushed %q (%s)", p.Client, p.Body, p.Outcome)
}

func (c *claim) String() string {
	return fmt.Sprintf("%s has it by hand-out %d of generation %d, attempt %d", c.Consumer, c.HandOut, c.Generation, c.Attempt)
}

func (s *settlement) String() string {
	ended := ""
	if s.Ended {
		ended = ", no longer the owner"
	}
	return fmt.Sprintf("%s (%s%s)", s.Op, s.Outcome, ended)
}
