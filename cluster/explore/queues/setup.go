// SPDX-License-Identifier: Apache-2.0

// Package queues is a shard with a consumer group as something to explore: the shipped core in the smallest shell, consumers
// that do whatever consumers may, faults, and what all of it must come to. It touches no disk, clock or network, and refuses
// to take the core's word for anything but what it wrote into the log.
package queues

import (
	"strings"

	"margay.dev/wire/batch"
)

// Fault is a kind of thing that does not happen when all goes well. A Setup says which of them may, and how often.
type Fault uint8

// The kinds.
const (
	Nack       Fault = iota // a consumer gives a message back, to be tried later
	Reject                  // a consumer has a message made a dead letter
	Late                    // a token is used that is not good any more, or never was
	Extend                  // a claim is made to last longer
	Timeout                 // time passes until a claim ends
	Die                     // a consumer's connection is lost
	Leave                   // a consumer leaves in good order
	Crash                   // the node ends, with or without what it had not flushed
	WriteFails              // what was appended cannot be written
	Pause                   // and resumed some time
	Seek                    // to the beginning or to the end
	Reset                   // begin again
	Redrive                 // dead letters are tried again
	Discard                 // dead letters are given up
	Cancel                  // a message is taken back
	Reschedule              // a message is put off
	Expire                  // messages have a time to live, and time passes until it ends
	Roll                    // a segment begins, with a checkpoint; a restart reads no other
	Trim                    // the log gives up its first message
	Pair                    // an ack and a publish in one batch
	faults
)

var faultNames = [faults]string{
	"nack", "reject", "late", "extend", "timeout", "die", "leave", "crash", "write fails", "pause", "seek", "reset",
	"redrive", "discard", "cancel", "reschedule", "expire", "roll", "trim", "pair",
}

func (f Fault) String() string { return faultNames[f] }

// Faults lists all kinds.
func Faults() []Fault {
	all := make([]Fault, faults)
	for i := range all {
		all[i] = Fault(i)
	}
	return all
}

// Budget says how often each fault may happen.
type Budget [faults]uint8

// Only is a budget of n for these kinds.
func Only(n uint8, kinds ...Fault) (b Budget) {
	for _, f := range kinds {
		b[f] = n
	}
	return b
}

func (b Budget) String() string {
	var names []string
	for f, n := range b {
		if n > 0 {
			names = append(names, Fault(f).String())
		}
	}
	return strings.Join(names, " and ")
}

// Message is one that is published. Times are in microseconds.
type Message struct {
	Key        string
	Delay, TTL int64
	Priority   uint8
}

// Setup is what is explored.
type Setup struct {
	Messages  []Message
	Settings  batch.GroupSettings
	Consumers int
	Credit    int  // of each
	Unsettled bool // the log keeps what is not settled
	Ready     bool // begin with all published and committed, and the first consumer there
	Faults    Budget
}
