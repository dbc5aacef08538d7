// SPDX-License-Identifier: Apache-2.0

// Package queue judges what the producers and consumers of one queue saw: that a message has one holder at a time and
// comes to one end, that neither it, nor an attempt, nor an acknowledged settlement is forgotten, and that nothing comes
// before its time; it holds data only, opens nothing, and refuses to guess where a history does not show enough.
package queue

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"margay.dev/cluster/history"
)

// Message names a message of the queue.
type Message struct {
	Shard  uint32
	Offset uint64
}

func (m Message) String() string { return fmt.Sprintf("%d/%d", m.Shard, m.Offset) }

// Times are microseconds since 1970 by the clock of who decides what is due. Others know it in bounds only; 0 stands for
// not known.

// Push is one message that a client tried to store.
type Push struct {
	Client string // for messages
	// Body tells the message apart from all others of the history.
	Body     string
	Key      string
	Delay    time.Duration
	TTL      time.Duration
	Priority uint8
	// NotBefore is a time that had come when the request left.
	NotBefore int64
}

// PushAnswer is how it ended.
type PushAnswer struct {
	Outcome history.Outcome
	// The rest is read for Acked only.
	Message
	AppendTime int64
}

// Group is a group whose consumers are judged.
type Group struct {
	AckWait     time.Duration
	MaxAttempts uint32 // 0: no bound
	// Backoff is how long an attempt that was given back without a time of its own waits, by how many have ended.
	Backoff []time.Duration
	ByKey   bool
	// Exact says that all hand-outs are in the history, each when it was decided, and that nothing is asked again unseen.
	Exact bool
	// WritesFail says that what was not acknowledged may be taken back while its leader goes on.
	WritesFail bool
	// Loses says that the log may give up what the group has not settled, whoever works on it. An Audit says from where on it
	// does not.
	Loses bool
}

// Claim is a message as it was handed out to a consumer.
type Claim struct {
	Group string
	// Consumer is one stream of one consumer: whoever comes again takes another name.
	Consumer string
	Message
	Resets     uint32
	Generation uint64
	HandOut    uint64
	Attempt    uint32
	Body, Key  string // may be told later: see Got
	// NotBefore is a time that had come when it was handed out, NotAfter one that had not passed when it was there.
	NotBefore, NotAfter int64
}

// Op is what a consumer does with a claim.
type Op uint8

const (
	// Ack settles the message.
	Ack Op = iota + 1
	// Nack ends the attempt.
	Nack
	// Reject makes it a dead letter.
	Reject
	// Release gives it back as if it had not been handed out.
	Release
	// Extend moves the claim's deadline.
	Extend
)

var opNames = [...]string{Ack: "ack", Nack: "nack", Reject: "reject", Release: "release", Extend: "extend"}

func (o Op) String() string {
	if o == 0 || int(o) >= len(opNames) {
		return "invalid"
	}
	return opNames[o]
}

// Settlement is one thing that a consumer asked about a claim.
type Settlement struct {
	Claim ClaimID
	Op    Op
	// For is how long the message waits behind a Nack, 0 by the backoff; and the claim's new time of an Extend.
	For time.Duration
	// NotBefore is a time that had come when the request left.
	NotBefore int64
}

// SettleAnswer is how it ended. Refused stands for any answer by which nothing was done.
type SettleAnswer struct {
	Outcome history.Outcome
	// Ended says that it was refused because the claim had ended.
	Ended bool
	// NotBefore, when it is known better by now than it was, and NotAfter, which had not passed when the answer was there.
	NotBefore, NotAfter int64
}

// Order is what is done to a group.
type Order uint8

const (
	// Cancel ends messages.
	Cancel Order = iota + 1
	// Redrive makes dead letters messages again.
	Redrive
	// Discard ends dead letters.
	Discard
	// Reschedule gives messages that wait another time.
	Reschedule
	// Restart is whatever makes a group begin: its creation, a seek, a reset, a deletion.
	Restart
	// Pause stops hand-outs.
	Pause
	// Resume lets them go on.
	Resume
)

var orderNames = [...]string{
	Cancel: "cancel", Redrive: "redrive", Discard: "discard", Reschedule: "reschedule", Restart: "restart", Pause: "pause",
	Resume: "resume",
}

func (o Order) String() string {
	if o == 0 || int(o) >= len(orderNames) {
		return "invalid"
	}
	return orderNames[o]
}

// Command is one thing that was asked of a group.
type Command struct {
	Group string // "": of all
	Order Order
	// Messages it is about; nil stands for all.
	Messages []Message
	// Due is the time that a Reschedule gives.
	Due int64
}

// DeadLetter is one of a list.
type DeadLetter struct {
	Message
	Attempts uint32
	Reason   Reason
}

// Reason why a message is a dead letter.
type Reason uint8

const (
	// Attempts: there were too many.
	Attempts Reason = iota + 1
	// Rejected by its consumer.
	Rejected
	// Expired before anybody had settled it.
	Expired
)

// Audit is what there is of a group in a shard once everything is at rest: no request is under way, and no fault.
type Audit struct {
	Group string
	Shard uint32
	// Resets of the group. What was done before the last of them counts for nothing.
	Resets uint32
	// From and To bound what is judged: what lies below From the group was never to get, or lost to retention.
	From, To uint64
	// Fresh says that what was pushed before the group last began may be gone: the others had settled it.
	Fresh bool
	Open  []Message // what is neither settled nor a dead letter
	Dead  []DeadLetter
	// NotAfter is a time that had not passed.
	NotAfter int64
}

type (
	// PushID names a push that was recorded.
	PushID int
	// ClaimID names a claim.
	ClaimID int
	// SettleID names a settlement.
	SettleID int
	// CommandID names a command.
	CommandID int
)

// Recorder collects a history of one queue. Its methods may be called from many goroutines; what happens before the call
// of one method and after the return of another is kept in that order, and concurrent calls in some order.
type Recorder struct {
	// Skew is how far the clocks of this history may lie beside each other.
	Skew time.Duration

	mu       sync.Mutex
	moment   int
	groups   map[string]Group
	pushes   []push
	claims   []claim
	settles  []settlement
	commands []command
	gone     []gone
	credits  []credit
	ends     []leaderEnd
	audits   []Audit
}

type push struct {
	Push
	PushAnswer
	began, ended int  // moments; ended is 0 while there is no answer
	placed       bool // Message is known, by the answer or because somebody got it
}

type claim struct {
	Claim
	moment  int
	settles []*settlement
}

type settlement struct {
	Settlement
	SettleAnswer
	began, ended int
}

type command struct {
	Command
	outcome      history.Outcome
	count        int
	began, ended int
}

type gone struct {
	group, consumer string
	orderly         bool
	moment          int
}

type credit struct {
	group, consumer string
	most, moment    int
}

type leaderEnd struct {
	shard  uint32
	moment int
}

// Group declares a group. Claims of others cannot be judged.
func (r *Recorder) Group(name string, g Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil {
		r.groups = map[string]Group{}
	}
	r.groups[name] = g
}

// Push records an attempt to store a message. Call it before the request leaves.
func (r *Recorder) Push(p Push) PushID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushes = append(r.pushes, push{Push: p, began: r.next()})
	return PushID(len(r.pushes) - 1)
}

// Pushed records its answer. Without one it counts as unknown.
func (r *Recorder) Pushed(id PushID, a PushAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushes[id].PushAnswer, r.pushes[id].ended = a, r.next()
}

// HandOut records that a consumer got a message.
func (r *Recorder) HandOut(c Claim) ClaimID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims = append(r.claims, claim{Claim: c, moment: r.next()})
	return ClaimID(len(r.claims) - 1)
}

// Got says what was in a message that was handed out.
func (r *Recorder) Got(id ClaimID, body, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[id].Body, r.claims[id].Key = body, key
}

// Settle records what a consumer asks about a claim. Call it before the request leaves.
func (r *Recorder) Settle(s Settlement) SettleID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settles = append(r.settles, settlement{Settlement: s, began: r.next()})
	return SettleID(len(r.settles) - 1)
}

// Settled records its answer. Without one it counts as unknown.
func (r *Recorder) Settled(id SettleID, a SettleAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &r.settles[id]
	x.SettleAnswer, x.ended = a, r.next()
	if a.NotBefore != 0 {
		x.Settlement.NotBefore = a.NotBefore
	}
}

// Command records what is asked of a group. Call it before the request leaves.
func (r *Recorder) Command(c Command) CommandID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = append(r.commands, command{Command: c, began: r.next()})
	return CommandID(len(r.commands) - 1)
}

// Commanded records its answer, and of how many messages it said that it was done. Without one it counts as unknown.
func (r *Recorder) Commanded(id CommandID, o history.Outcome, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &r.commands[id]
	x.outcome, x.count, x.ended = o, count, r.next()
}

// Gone says that from now on the stream of a consumer may end, and its claims with it: in order, or otherwise. Call it
// before anything is done about it.
func (r *Recorder) Gone(group, consumer string, orderly bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, gone{group, consumer, orderly, r.next()})
}

// Credit says how many messages a consumer wants to have at once, from now on. It is judged in exact groups.
func (r *Recorder) Credit(group, consumer string, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credits = append(r.credits, credit{group, consumer, most, r.next()})
}

// LeaderEnds says that from now on the leader of a shard may end, and all claims there with it.
func (r *Recorder) LeaderEnds(shard uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, leaderEnd{shard, r.next()})
}

// Audit records what there is in the end. Only audits can show that a message is lost.
func (r *Recorder) Audit(a Audit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.audits = append(r.audits, a)
}

// Counts says how many pushes and how many of each thing that consumers asked were acknowledged: a run that acknowledged
// nothing proves nothing.
func (r *Recorder) Counts() (pushed, handedOut int, settled map[Op]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	settled = map[Op]int{}
	for i := range r.pushes {
		if r.pushes[i].Outcome == history.Acked {
			pushed++
		}
	}
	for i := range r.settles {
		if r.settles[i].Outcome == history.Acked {
			settled[r.settles[i].Op]++
		}
	}
	return pushed, len(r.claims), settled
}

// Check returns every violation that the history shows so far, none if it keeps every promise.
func (r *Recorder) Check() []Violation {
	r.mu.Lock()
	c := checker{
		groups: maps.Clone(r.groups), skew: r.Skew.Microseconds(),
		pushes: slices.Clone(r.pushes), claims: slices.Clone(r.claims), settles: slices.Clone(r.settles),
		commands: slices.Clone(r.commands), gone: slices.Clone(r.gone), credits: slices.Clone(r.credits),
		ends: slices.Clone(r.ends), audits: slices.Clone(r.audits),
	}
	r.mu.Unlock()
	return c.check()
}

// next is called with the lock held.
func (r *Recorder) next() int {
	r.moment++
	return r.moment
}
