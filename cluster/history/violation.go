// SPDX-License-Identifier: Apache-2.0

package history

import "fmt"

// Kind says what a history breaks.
type Kind uint8

const (
	// Lost: an acknowledged record is not where its answer said, and an audit shows that nothing is.
	Lost Kind = iota + 1
	// Altered: the offset of an acknowledged record holds other bytes.
	Altered
	// Stored: a record whose answer said "certainly not applied" was read.
	Stored
	// Twice: one attempt was stored more than once.
	Twice
	// Clash: two attempts were acknowledged with one offset.
	Clash
	// Phantom: a record was read that nobody wrote.
	Phantom
	// Disagree: two readers got different bytes at one offset.
	Disagree
	// Vanished: a reader got a record that an audit did not find.
	Vanished
	// ProducerOrder: a producer's records are stored in another order than it began them.
	ProducerOrder
	// ShardOrder: an attempt that began after another was acknowledged is stored before it. Order per key is this order
	// within the key's shard.
	ShardOrder
	// GenerationOrder: a later offset was acknowledged at an earlier generation.
	GenerationOrder
	// Skipped: a reader was led past an offset and not told.
	Skipped
	// Repeated: a reader got an offset again, or was told of a gap that it had been led past.
	Repeated
	// Condition: a conditional attempt was stored on another version than it asked for, or was refused for a version that
	// its key cannot have had.
	Condition
	// CursorBack: a cursor was found behind a place that was committed and acknowledged, or beyond any that was asked for.
	CursorBack
	// StartBack: a log began below where it was said to begin before.
	StartBack
	// Unusable: the history itself cannot be judged.
	Unusable
)

// kinds holds each kind's name and the guarantee of docs/guarantees.md that it breaks.
var kinds = [...]struct{ name, guarantee string }{
	Lost:            {"lost", "S2"},
	Altered:         {"altered", "S2"},
	Stored:          {"stored", "S2"},
	Twice:           {"twice", "S7"},
	Clash:           {"clash", "S3"},
	Phantom:         {"phantom", "S3"},
	Disagree:        {"disagree", "S3"},
	Vanished:        {"vanished", "S4"},
	ProducerOrder:   {"producer order", "S5"},
	ShardOrder:      {"shard order", "S5"},
	GenerationOrder: {"generation order", "S1"},
	Skipped:         {"skipped", "S5"},
	Repeated:        {"repeated", "S5"},
	Condition:       {"condition", "R16"},
	CursorBack:      {"cursor back", "R13"},
	StartBack:       {"start back", "R19"},
	Unusable:        {"unusable history", ""},
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
	Kind   Kind
	Shard  Shard
	Offset uint64
	Detail string
}

func (v Violation) String() string {
	id := v.Kind.Guarantee()
	if id == "" {
		id = "-"
	}
	return fmt.Sprintf("%s %s: %s/%d offset %d: %s", id, v.Kind, v.Shard.Log, v.Shard.Number, v.Offset, v.Detail)
}
