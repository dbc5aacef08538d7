// SPDX-License-Identifier: Apache-2.0

// Package group decides, for the consumer groups of one shard, which message is handed to whom, when a claim ends, and what
// becomes of a message then; it is stepped by the shard's core, which appends what is to be remembered, and refuses to know of
// disks, clocks, sockets or locks.
//
// What a group must remember is the entries that it appends: they are applied the instant they are appended, the same way
// as when the log is read again, and taken back when they are cut off. What is handed out, and to whom, is in memory only.
//
// Of each message a group knows one of: it is *passed* (settled, dead, expired, lost, or parked), or not. One that is
// *parked* is outstanding beside the cursor: it waits for its next attempt, was redriven, or put off. So the ranges that are
// passed stay few, and one message that keeps failing holds up nothing.
package group

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of the groups of a shard.
const (
	MaxGroups    = 10_000
	MaxRanges    = 262_144      // of passed offsets above the first gap; with as many a group hands out nothing new
	MaxParked    = 1_000_000    // messages of a group; with as many it hands out nothing new
	MaxConsumers = 10_000       // of a group
	MaxCommands  = 10_000       // whose ids the shard remembers
	commandLeast = 60_000_000   // us, that an id is remembered at the least, however many come
	CommandKept  = 3600_000_000 // us, by append time
	MaxError     = batch.MaxGroupReason
	LookKept     = 30_000_000 // us, that what is outstanding stays known when somebody looked and nobody consumes

	// LookAhead is how many messages a group takes in before they are handed out: priorities are strict among those, and
	// with an order by key, a key that is held up holds up no other.
	LookAhead = 1_000_000
	// SweepEvery is how often what has expired is looked for (us).
	SweepEvery = 60_000_000

	maxChunk  = 256  // messages to one consumer before the next has its turn
	maxHanded = 4096 // ranges remembered of what was handed out, before those that are passed are forgotten
)

// Credit is how much a consumer may still be handed. It may be shared with other shards.
type Credit interface {
	// Take takes up to n, and says how many there were. Who is refused is told with CreditBack when there is some again.
	Take(n int) int
	Give(n int)
}

// Consumer is one lane's interest in one group of one shard.
type Consumer struct {
	Name        string
	Concurrency int // messages that it works on at a time
	Credit      Credit
	Lane        any // the caller's, untouched

	group   *Group
	out     int  // claims
	starved bool // Credit had nothing
}

// Handed is one message that a consumer is given.
type Handed struct {
	HandOut  uint64 // never repeated in the group and generation
	Offset   uint64
	Sequence uint64 // of the carried batch that holds it; 0: find it by its offset
	Attempt  uint32 // from 1
	At       int64  // since when it could be handed out (us)
}

// Hand is what one consumer is given. Items are the receiver's to keep.
type Hand struct {
	To     *Consumer
	Group  uint64
	Resets uint32
	Items  []Handed
}

// Op is what is said of a claim.
type Op uint8

// The operations.
const (
	Ack     Op = 1 // it is done
	Nack    Op = 2 // try again, after a while
	Reject  Op = 3 // never try again: it goes to the dead letters
	Release Op = 4 // it was not tried
)

// Token names claims, and says what becomes of them.
type Token struct {
	Op      Op
	HandOut uint64
	Offset  uint64
	Count   uint32 // of consecutive hand-outs of consecutive offsets; 0 is 1
	After   int64  // us until the next attempt, of a Nack; 0: by the group's backoff
	Reason  string
}

// Settlement is a request to settle.
type Settlement struct {
	Group      uint64
	Resets     uint32
	Generation uint64
	Tokens     []Token
	To         any
}

// Extension asks for claims to last longer.
type Extension struct {
	Group      uint64
	Resets     uint32
	Generation uint64
	For        int64 // us from now on; 0: the group's ack wait
	Tokens     []Token
}

// Failed is a token that was refused: that many of Tokens[Index], from its Sub'th on... each is named by itself.
type Failed struct {
	Index int // of the token
	Sub   int // which of its Count
	Code  code.Code
}

// Joined is what a consumer learns of its group.
type Joined struct {
	ID      uint64
	Resets  uint32
	AckWait int64 // us
}

// Message is what a group has to know of a record.
type Message struct {
	Offset     uint64
	AppendTime int64
	Due        int64  // us; 0: at once
	Expires    int64  // us; 0: never
	Key        uint64 // hash; 0: none
	Priority   uint8
}

// Effects is what a step leads to.
type Effects struct {
	Entries [][]batch.Entry // to be appended, each list as one control batch, at consecutive sequences
	Hands   []Hand
	Scans   []Scan
	Gone    []*Consumer // whose group was deleted: they are not its consumers any more

	size int // about, of the last list
}

// Scan asks for the batches of the log from an offset on, to be handed back with Scanned.
type Scan struct {
	Group *Group // nil: of the sweep
	From  uint64
	id    uint64
}

// Scanned brings what a Scan asked for: batches that follow each other, the first holding From unless that is not in the log
// any more.
type Scanned struct {
	Scan    Scan
	Batches []batch.Batch
	Next    uint64      // what is below is looked through; equal to From when nothing could be read
	Lost    []Span      // of that, what a repair has given up
	Err     *code.Error // why not
}
