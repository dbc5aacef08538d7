// SPDX-License-Identifier: Apache-2.0

// Package shard decides, for one shard at one generation, what is appended at which offset, what is a
// retry, what is committed and who is answered; it is stepped by one goroutine and refuses to know of
// disks, clocks, sockets or locks.
//
// What has been appended but not committed is the pending layer: only the ordered append consults it,
// and losing it (a failed write, a failed flush) cuts it off again. An answer that rests on it waits
// until it is committed.
package shard

import (
	"time"

	"margay.dev/broker/group"
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// AckLevel is how far a record must have got before its publisher is answered.
type AckLevel uint8

// The ack levels, weakest first. The zero value asks for the log's rule.
const (
	AckDefault AckLevel = iota
	AckNone             // appended; may be lost
	AckLeader           // flushed at the leader
	AckQuorum           // flushed at a majority of the replicas, leader included
)

// Fsync is when a log's bytes are flushed.
type Fsync uint8

// The fsync modes of a log.
const (
	FsyncAlways Fsync = iota
	FsyncInterval
	FsyncNever
)

// Defaults and bounds of a shard.
const (
	DefaultSegmentBytes = 256 << 20
	MinSegmentBytes     = 4 << 10
	MaxProducers        = 10_000
	ProducerIdle        = 15 * time.Minute // by append time; a producer silent for longer may be forgotten
	ProducerWindow      = 256              // batches per producer that a retry is recognized among
	MaxGenerations      = 4096             // entries of the generation table kept
	DefaultDedupWindow  = 2 * time.Minute  // how long a dedup id counts, by append time
	MaxDedupIDs         = 100_000          // within the window; beyond it records with an id are refused
	checkpointShare     = 16               // a segment rolls only when it holds this many times its checkpoint
)

// Config is what a shard is told of its log.
type Config struct {
	Node         string // leader's node id, named in the opening batch
	Generation   uint64 // fresh from the catalog: a broker never leads twice at one generation
	Rule         AckLevel
	MinAck       AckLevel
	Fsync        Fsync
	Memory       bool // no files: a restart loses all, and the opening says so
	MaxAge       time.Duration
	MaxBytes     int64
	SegmentBytes int64
	SegmentAge   time.Duration
	MaxProducers int
	MaxCursors   int
	MaxLasts     int
	DropOldest   bool // a full disk takes the oldest segments instead of refusing records

	DedupWindow time.Duration
	MaxDedupIDs int

	// KeepNewest keeps the newest record of each key, and gives up the others by liveness; its keys are always known.
	KeepNewest bool
	MaxKeys    int // that the shard knows; beyond it new ones are refused, or none are known
	// KeepUnsettled keeps a record until every group, and at least one, has settled it.
	KeepUnsettled bool
	// Read returns a copy of a committed record, by the sequence of its batch and its offset. It never changes.
	Read func(sequence, offset uint64) (batch.Record, error)
}

// Publish asks for one produced batch to be appended. The core owns the batch from the step that takes it.
type Publish struct {
	Batch    batch.Batch
	Previous uint64 // the producer's last sequence that the client still stands by
	// Conditions must all hold, or nothing is stored; their records rise.
	Conditions []Condition
	// Derives says which records are made from what their keys hold; they rise. The batch that is stored is then the
	// core's own, under the producer's id and sequence, and Derived says so.
	Derives  []Derive
	Derived  bool
	Level    AckLevel
	Deadline int64 // us; 0 for none
	To       any   // the caller's, untouched: whom to answer
}

// Ack is the answer to a stored batch.
type Ack struct {
	BaseOffset uint64
	Generation uint64
	AppendTime int64
	Count      uint32
	Replicas   uint8
	Flushed    bool
	Committed  bool
	Duplicate  bool
	Sums       []int64 // of what was to be added, in order; none for a duplicate
}

// Answer is the one terminal answer to a publish: Err is nil when it is stored.
type Answer struct {
	To     any
	Ack    Ack
	Cursor *Cursor        // of an OpenCursor
	Joined *group.Joined  // of a JoinGroup
	Failed []group.Failed // of a Settlement or ExtendClaims: the tokens that were refused
	Done   *group.Done    // of a GroupCommand
	Err    *code.Error
}

// Effects is what a step asks its shell to do, in this order: write, flush, answer, fan out, drop.
type Effects struct {
	Append    []batch.Batch // write these as one run at the tail
	Flush     bool          // what was appended must be flushed whatever the fsync mode
	Answers   []Answer
	Committed []Committed // newly committed, in sequence, control batches too
	Moves     []Move      // of the log's start, newly committed
	Drop      uint64      // segments wholly below this sequence may go; 0 for none

	CursorsExpired int // what was done by itself, to be counted
	LastsPublished int
	Expired        int // keys
	Keys           *BuildKeys
	Places         *BuildPlaces
	Reclaim        *ReclaimHead

	Hands []group.Hand      // to be handed over when all else is done
	Scans []group.Scan      // of the log, each to be answered with GroupsScanned
	Gone  []*group.Consumer // whose group was deleted
}

// Committed is one batch that readers may now see, and whom its publish came from (nil for a batch of the
// core's own).
type Committed struct {
	Batch batch.Batch
	To    any
}

// Reset empties the effects for reuse.
func (e *Effects) Reset() {
	clear(e.Append)
	clear(e.Answers)
	clear(e.Committed)
	clear(e.Hands)
	*e = Effects{
		Append: e.Append[:0], Answers: e.Answers[:0], Committed: e.Committed[:0], Moves: e.Moves[:0], Hands: e.Hands[:0],
	}
}

// Event is one thing that happened to a shard.
type Event interface{ shardEvent() }

// Written says that everything below Length is in the file.
type Written struct{ Length uint64 }

// Flushed says that everything below Length is durable.
type Flushed struct{ Length uint64 }

// WriteFailed says that nothing at or above the written length is in the file: Err refuses it.
type WriteFailed struct{ Err *code.Error }

// Lost says that what was not committed may or may not be on disk and that this core ends here.
type Lost struct{ Err *code.Error }

// Space says whether the disk has room for records; settlements, checkpoints and log starts go on without.
type Space struct{ Full bool }

// Tick lets time pass: Segments is what the log holds, oldest first, the newest last.
type Tick struct{ Segments []Segment }

// Segment is what retention must know of one segment.
type Segment struct {
	BaseSequence   uint64
	BaseOffset     uint64
	LastAppendTime int64
	Bytes          int64
}

func (*Publish) shardEvent()    {}
func (Written) shardEvent()     {}
func (Flushed) shardEvent()     {}
func (WriteFailed) shardEvent() {}
func (Lost) shardEvent()        {}
func (Space) shardEvent()       {}
func (Tick) shardEvent()        {}

// entry is one appended batch that is not committed.
type entry struct {
	batch   batch.Batch
	to      any
	level   AckLevel
	dead    int64   // deadline, 0 for none
	sums    []int64 // to be told
	waiting bool    // somebody still has to be answered
	before  account // of the newest segment, to return to when this batch is cut off
	needed  bool    // a checkpoint had to come first when this batch was appended
}

// account is what the newest segment holds: a function of the log alone, so that a replay reaches the same.
type account struct {
	bytes      int64 // after its checkpoint
	first      int64 // append time of its first batch after the checkpoint
	checkpoint int64 // bytes of its checkpoint
	records    bool  // it holds records, not only control batches
}

// retry is a publish whose answer rests on what is pending: its original, or the record that it lost against.
type retry struct {
	rests uint64 // it is true once everything below this offset is committed
	ack   Ack
	err   *code.Error // instead of ack
	to    any
}

// Core is the state of one shard. It is not safe for concurrent use.
type Core struct {
	cfg Config

	length     uint64 // sequence of the next batch
	nextOffset uint64
	lastAppend int64
	notBefore  int64 // the shard's time does not go back behind this
	written    uint64
	flushed    uint64
	mark       uint64 // exclusive: batches below it are committed
	ceiling    uint64 // offset of the first record that is not

	opened          bool // this generation's opening batch is appended
	needsCheckpoint bool // the next append begins a segment: the log is empty, or a repair left a gap
	lost            *code.Error
	full            bool

	start LogStart
	moves []move // of the start, appended and not committed, in order

	segment account

	pending   []entry // sequences [mark, length), in order
	retries   []retry
	waiters   []waiter
	nextDead  int64
	producers producers
	cursors   cursors
	lasts     lasts
	gens      generations
	dedups    dedups
	keys      keys
	sums      sums
	groups    *group.Groups
	grouping  bool // the groups know that the shard is led
	places    places

	sweepAgain uint64 // no key is expired before what lies below is committed
	reclaiming bool   // a head is being carried
	reclaimAt  int64  // not before (us)
	inVain     int64  // bytes carried in a row from heads that gave up next to nothing
}

// New makes the core of a shard whose log is empty; Replay feeds it what the newest segment holds.
func New(cfg Config) *Core {
	if cfg.SegmentBytes <= 0 {
		cfg.SegmentBytes = DefaultSegmentBytes
	}
	if cfg.MaxProducers <= 0 {
		cfg.MaxProducers = MaxProducers
	}
	if cfg.MaxCursors <= 0 {
		cfg.MaxCursors = MaxCursors
	}
	if cfg.MaxLasts <= 0 {
		cfg.MaxLasts = MaxLasts
	}
	if cfg.Rule == AckDefault {
		cfg.Rule = AckQuorum
	}
	if cfg.MinAck == AckDefault {
		cfg.MinAck = cfg.Rule
	}
	if cfg.DedupWindow <= 0 {
		cfg.DedupWindow = DefaultDedupWindow
	}
	if cfg.MaxDedupIDs <= 0 {
		cfg.MaxDedupIDs = MaxDedupIDs
	}
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = MaxKeys
		if cfg.KeepNewest {
			cfg.MaxKeys = MaxNewestKeys
		}
	}
	c := &Core{
		cfg: cfg, needsCheckpoint: true, producers: newProducers(cfg.MaxProducers),
		cursors: newCursors(cfg.MaxCursors), lasts: newLasts(cfg.MaxLasts), dedups: newDedups(cfg.DedupWindow, cfg.MaxDedupIDs),
	}
	c.groups = c.newGroups()
	return c
}

// Step takes one event at time now (us), adds what follows to eff, and says when it wants to be stepped
// next at the latest (us; 0 for never).
func (c *Core) Step(now int64, ev Event, eff *Effects) (wake int64) {
	switch ev := ev.(type) {
	case *Publish:
		c.publish(now, ev, eff)
	case Written:
		c.written = max(c.written, ev.Length)
		c.commit(eff)
	case Flushed:
		c.flushed = max(c.flushed, ev.Length)
		c.written = max(c.written, ev.Length)
		c.commit(eff)
	case WriteFailed:
		c.cut(c.written, ev.Err, eff)
	case Lost:
		c.lost = ev.Err
		c.cut(c.mark, ev.Err, eff)
	case Space:
		c.full = ev.Full
	case Tick:
		c.retain(now, ev.Segments, eff)
	case *OpenCursor:
		c.openCursor(now, ev, eff)
	case *CommitCursors:
		c.commitCursors(now, ev, eff)
	case *DeleteCursor:
		c.deleteCursor(now, ev, eff)
	case *SetLast:
		c.setLast(now, ev, eff)
	case *ClearLast:
		c.clearLast(now, ev, eff)
	case LastAlive:
		c.lasts.alive(ev.ID)
	case ConnectionLost:
		c.publishLast(now, ev.ID, eff)
	case Time:
		c.passTime(now, eff)
	case *Trim:
		c.trim(now, ev, eff)
	case Reclaim:
		c.reclaim(now, ev, eff)
	case KeysBuilt:
		c.keysBuilt(now, ev)
	case WantKeys:
		c.wantKeys(now, ev, eff)
	case KeyRoom:
		c.keyRoom(now, ev)
	case *Carry:
		c.carry(now, ev, eff)
	case Carried:
		c.carried(now, ev, eff)
	case PlacesBuilt:
		c.placesBuilt(now, ev)
	default:
		c.groupEvent(now, ev, eff)
	}
	c.forgetKeys(now)
	c.learnPlaces(now, eff)
	c.groupsTurn(now, mayAppend(ev), eff)
	c.expire(now, eff)
	return c.nextDead
}

// mayAppend says whether what a step appends is still written: not when the shell is already past that.
func mayAppend(ev Event) bool {
	switch ev.(type) {
	case Written, Flushed, WriteFailed, Lost:
		return false
	}
	return true
}

// View is what readers and reports see of a shard.
type View struct {
	Generation  uint64
	Start       LogStart
	Mark        uint64 // sequence, exclusive
	Ceiling     uint64 // offset, exclusive: what a reader may see
	Length      uint64
	NextOffset  uint64
	LastAppend  int64
	Producers   int
	Cursors     int
	Lasts       int
	Uncommitted int
	Groups      int
	Keys        *keyindex.Index // the newest record of each key; nil when that is not known now
}

// View returns the shard's state.
func (c *Core) View() View {
	return View{
		Generation: c.cfg.Generation, Start: c.start, Mark: c.mark, Ceiling: c.ceiling, Length: c.length,
		NextOffset: c.nextOffset, LastAppend: c.lastAppend, Producers: c.producers.len(),
		Cursors: c.cursors.len(), Lasts: c.lasts.len(), Uncommitted: len(c.pending), Groups: c.groups.Len(),
		Keys: c.keys.index,
	}
}

// OutOfRange says that an offset is not one that the log holds, or is about to.
func (v View) OutOfRange(offset uint64) *code.Error {
	return code.New(code.OutOfRange, "offset %d is outside the log, which holds %d up to %d", offset, v.Start.Offset, v.Ceiling).
		With(code.DetailEarliest, v.Start.Offset).With(code.DetailLatest, v.Ceiling)
}
