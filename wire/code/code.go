// SPDX-License-Identifier: Apache-2.0

// Package code holds the error codes and classes that every answer of the platform carries; it is
// plain values, touches nothing, and refuses to let a caller depend on message text.
package code

import "strconv"

// Class is the contract of an error: what the caller may conclude about the request it answers.
// Clients act on the class, never on message text.
type Class uint8

const (
	// ClassRefused: certainly not applied, and may succeed later or elsewhere.
	ClassRefused Class = 1
	// ClassFatal: certainly not applied, and fails again if sent again unchanged.
	ClassFatal Class = 2
	// ClassUnknown: it may have been applied.
	ClassUnknown Class = 3
)

// String returns the class as documentation and logs write it.
func (c Class) String() string {
	switch c {
	case ClassRefused:
		return "refused"
	case ClassFatal:
		return "fatal"
	case ClassUnknown:
		return "unknown"
	}
	return "class_" + strconv.Itoa(int(c))
}

// Code is a stable error number. Numbers and names are frozen: they stand on the wire, in metrics and
// in applications. A Code is itself an error, so errors.Is(err, code.NotFound) reads well.
type Code uint16

// The codes. Zero is not a code: it says "no error" where a frame has room for one.
const (
	Internal         Code = 1
	BadRequest       Code = 2
	Unsupported      Code = 3
	Unauthenticated  Code = 4
	PermissionDenied Code = 5
	NotFound         Code = 6
	AlreadyExists    Code = 7
	TooLarge         Code = 8
	CorruptBatch     Code = 9
	NotLeader        Code = 10
	Opening          Code = 11
	Unavailable      Code = 12
	ShuttingDown     Code = 13
	Overloaded       Code = 14
	StorageFull      Code = 15
	Quarantined      Code = 16
	OutOfRange       Code = 17
	Cut              Code = 18
	OutOfOrder       Code = 19
	ProducerUnknown  Code = 20
	ProducersFull    Code = 21
	OutcomeUnknown   Code = 22
	Timeout          Code = 23
	Cancelled        Code = 24
	SlowConsumer     Code = 25
	Protocol         Code = 26
	Conflict         Code = 27
	Closed           Code = 28
	TooMany          Code = 29
	BufferFull       Code = 30
	Deleted          Code = 31
	TakenOver        Code = 32
	NotANumber       Code = 33
	NoLongerOwner    Code = 34
)

// Error returns the stable name, for example "not_found". A code that this build does not know (the
// peer is newer) is named by its number.
func (c Code) Error() string {
	if c.Known() {
		return table[c].name
	}
	return "code_" + strconv.Itoa(int(c))
}

// Class returns the default class. A code that this build does not know is ClassUnknown, the only
// class from which nothing wrong can be concluded.
func (c Code) Class() Class {
	if c.Known() {
		return table[c].class
	}
	return ClassUnknown
}

// Remedy says what the reader of the error can do about it.
func (c Code) Remedy() string {
	if c.Known() {
		return table[c].remedy
	}
	return "upgrade this program: the other side is newer"
}

// Known reports whether this build knows the code.
func (c Code) Known() bool { return c >= 1 && int(c) < len(table) }

// All returns every code in order of its number.
func All() []Code {
	all := make([]Code, 0, len(table)-1)
	for c := range len(table) - 1 {
		all = append(all, Code(c+1))
	}
	return all
}
