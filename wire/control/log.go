// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"time"

	"margay.dev/wire/batch"
)

// Presets of a log, one for each way of reading it. Every log can be read in every way: a preset is defaults, and a
// collection of the API.
const (
	PresetStream = "stream"
	PresetCache  = "cache"
	PresetQueue  = "queue"
)

// Which records a log keeps.
const (
	KeepAll       = "all"       // every record, until its age or the log's size removes it
	KeepNewest    = "newest"    // of each key the newest, until it is deleted or its TTL ends
	KeepUnsettled = "unsettled" // every record until all groups, and at least one, have settled it, or as with KeepAll
)

// Acknowledgement rules, the weakest first.
const (
	AckNone   = "none"   // written at the leader, not flushed
	AckLeader = "leader" // flushed at the leader
	AckQuorum = "quorum" // flushed at a majority of the replicas
)

// When an append is flushed to the disk.
const (
	FsyncAlways   = "always"   // before it is acknowledged
	FsyncInterval = "interval" // at least once per interval; an acknowledged record can be lost with the power
	FsyncNever    = "never"    // when the operating system likes
)

// Where the records live.
const (
	StorageDisk   = "disk"
	StorageMemory = "memory" // gone with the process
)

// What happens when the disk is full.
const (
	OnFullRefuse     = "refuse"      // records are refused until there is room
	OnFullDropOldest = "drop-oldest" // the log gives up its oldest segments, so that writing goes on
)

// Limits and defaults of a log's settings.
const (
	MaxShards = 1024

	MinSegmentBytes     = 4 << 10
	MaxSegmentBytes     = 4 << 30
	DefaultSegmentBytes = 256 << 20 // what 0 means
	// ReclaimedSegmentBytes is what 0 means with KeepNewest and KeepUnsettled: room is made by whole segments, of which what
	// lives is written again, and a smaller one is waited for by nobody.
	ReclaimedSegmentBytes = 16 << 20

	MaxMaxKeys     = 1_000_000_000 // per shard
	DefaultMaxKeys = 10_000_000

	MinTTL = time.Millisecond
	MaxTTL = 3650 * 24 * time.Hour

	// MinMaxBytes is the least a log that does not set its segments' size may keep.
	MinMaxBytes   = 1 << 20
	MinMaxAge     = time.Second
	MinSegmentAge = time.Second

	MinFsyncInterval     = time.Millisecond
	MaxFsyncInterval     = time.Minute
	DefaultFsyncInterval = 100 * time.Millisecond

	MinDedupWindow     = time.Second
	MaxDedupWindow     = 24 * time.Hour
	DefaultDedupWindow = 2 * time.Minute
)

// Log is one log of the catalog with all of its settings, none of them left to a default.
type Log struct {
	ID                      batch.LogID // random, never used again
	Tenant, Namespace, Name string
	Preset                  string

	Shards   int
	Replicas int

	Ack    string // what moves the mark, and what a publish gets that does not say
	MinAck string // the least a publish may ask for

	Fsync         string
	FsyncInterval time.Duration // 0 unless Fsync is FsyncInterval
	Storage       string

	Keep    string
	MaxKeys int64         // per shard, beyond which new keys are refused; 0 unless Keep is KeepNewest
	TTL     time.Duration // of a record that is put without one; 0: for good, and unless Keep is KeepNewest

	MaxAge   time.Duration // 0: no limit
	MaxBytes int64         // per shard; 0: no limit
	OnFull   string        // a log in memory is bounded by itself and always drops its oldest

	DedupWindow time.Duration // how long a dedup id counts, from its first record on

	SegmentBytes int64         // 0: by what the log keeps; see SegmentSize
	SegmentAge   time.Duration // 0: the broker's default

	CreatedAt time.Time
	Version   uint64 // of the catalog when the log was last changed; its ETag
	// Deleted marks a log that was deleted: it stays in the snapshot until every broker has removed its data, because
	// a broker deletes nothing merely for not finding it in the catalog.
	Deleted bool
}

// FullName is the log's address.
func (l *Log) FullName() string { return FullName(l.Tenant, l.Namespace, l.Name) }

// SegmentSize is the size at which a segment is closed, in bytes. Retention removes whole segments, so with a small
// MaxBytes the default gives way: a log of one segment could never shed anything.
func (l *Log) SegmentSize() int64 {
	if l.SegmentBytes > 0 {
		return l.SegmentBytes
	}
	size := int64(DefaultSegmentBytes)
	if l.Keep == KeepNewest || l.Keep == KeepUnsettled {
		size = ReclaimedSegmentBytes
	}
	if l.MaxBytes > 0 {
		size = min(size, max(l.MaxBytes/4, MinSegmentBytes))
	}
	return size
}

// SetDefaults fills what is not set with the defaults of the log's preset.
func (l *Log) SetDefaults() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&l.Tenant, DefaultTenant)
	def(&l.Namespace, DefaultNamespace)
	def(&l.Preset, PresetStream)
	def(&l.Ack, AckQuorum)
	def(&l.MinAck, AckNone)
	def(&l.Fsync, FsyncAlways)
	def(&l.Storage, StorageDisk)
	def(&l.OnFull, OnFullRefuse)
	switch l.Preset {
	case PresetCache:
		def(&l.Keep, KeepNewest)
	case PresetQueue:
		def(&l.Keep, KeepUnsettled)
	}
	def(&l.Keep, KeepAll)
	if l.Keep == KeepNewest && l.MaxKeys == 0 {
		l.MaxKeys = DefaultMaxKeys
	}
	if l.DedupWindow == 0 {
		l.DedupWindow = DefaultDedupWindow
	}
	if l.Shards == 0 {
		l.Shards = 1
	}
	if l.Replicas == 0 {
		l.Replicas = 1
	}
	if l.Fsync == FsyncInterval && l.FsyncInterval == 0 {
		l.FsyncInterval = DefaultFsyncInterval
	}
}

// Problem is one thing wrong with a document: the path of the field and what would be right.
type Problem struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// String is the problem in one line.
func (p Problem) String() string { return p.Path + ": " + p.Message }

// Validate lists everything that is wrong with the log's settings; nothing for a log that can be created.
func (l *Log) Validate() []Problem {
	var ps problems
	ps.name("tenant", l.Tenant)
	ps.name("namespace", l.Namespace)
	ps.name("name", l.Name)
	ps.oneOf("preset", l.Preset, PresetStream, PresetCache, PresetQueue)
	if l.Shards < 1 || l.Shards > MaxShards {
		ps.add("shards", "%d is not between 1 and %d", l.Shards, MaxShards)
	}
	if l.Replicas < 1 {
		ps.add("replicas", "%d is below the minimum of 1", l.Replicas)
	} else if l.Replicas > 1 {
		ps.add("replicas", "%d copies: one node holds one copy; clusters come with a later version: use replicas 1", l.Replicas)
	}
	ps.oneOf("ack", l.Ack, AckLeader, AckQuorum)
	ps.oneOf("min_ack", l.MinAck, AckNone, AckLeader, AckQuorum)
	if l.Ack == AckLeader && l.MinAck == AckQuorum {
		ps.add("min_ack", "%q is more than the ack rule %q gives: use %q or %q", l.MinAck, l.Ack, AckNone, AckLeader)
	}
	ps.oneOf("fsync", l.Fsync, FsyncAlways, FsyncInterval, FsyncNever)
	if l.Fsync == FsyncInterval {
		if l.FsyncInterval < MinFsyncInterval || l.FsyncInterval > MaxFsyncInterval {
			ps.add("fsync_interval", "%v is not between %v and %v", l.FsyncInterval, Duration(MinFsyncInterval), Duration(MaxFsyncInterval))
		}
	} else if l.FsyncInterval != 0 {
		ps.add("fsync_interval", "means nothing with fsync %q: leave it out, or use fsync %q", l.Fsync, FsyncInterval)
	}
	ps.oneOf("storage", l.Storage, StorageDisk, StorageMemory)
	ps.oneOf("keep", l.Keep, KeepAll, KeepNewest, KeepUnsettled)
	ps.oneOf("on_full", l.OnFull, OnFullRefuse, OnFullDropOldest)
	if l.DedupWindow < MinDedupWindow || l.DedupWindow > MaxDedupWindow {
		ps.add("dedup_window", "%v is not between %v and %v", Duration(l.DedupWindow), Duration(MinDedupWindow), Duration(MaxDedupWindow))
	}
	if l.Keep == KeepNewest {
		l.validateNewest(&ps)
	} else {
		l.validateRetained(&ps)
	}
	l.validateSegments(&ps)
	return ps
}

// validateNewest refuses what would end a key otherwise than by its TTL or a delete.
func (l *Log) validateNewest(ps *problems) {
	if l.MaxKeys < 1 || l.MaxKeys > MaxMaxKeys {
		ps.add("max_keys", "%d is not between 1 and %d", l.MaxKeys, MaxMaxKeys)
	}
	if l.TTL != 0 && (l.TTL < MinTTL || l.TTL > MaxTTL) {
		ps.add("ttl", "%v is not between %v and %v; 0s means for good", Duration(l.TTL), Duration(MinTTL), Duration(MaxTTL))
	}
	const ends = "with keep %q a key ends by its TTL or when it is deleted, and the size is bounded by max_keys"
	if l.MaxAge != 0 {
		ps.add("max_age", "%v has to be 0s: "+ends+"; use ttl", Duration(l.MaxAge), l.Keep)
	}
	if l.MaxBytes != 0 {
		ps.add("max_bytes", "%d has to be 0: "+ends, l.MaxBytes, l.Keep)
	}
	if l.OnFull == OnFullDropOldest {
		ps.add("on_full", "%q would drop keys: "+ends+"; use on_full %q", l.OnFull, l.Keep, OnFullRefuse)
	}
}

// validateRetained is for what goes by age and size: of all records, or of those that groups have not settled.
func (l *Log) validateRetained(ps *problems) {
	const nothing = "means nothing with keep %q: leave it out, or use keep %q"
	known := l.Keep == KeepAll || l.Keep == KeepUnsettled // else the problem is another one
	if known && l.MaxKeys != 0 {
		ps.add("max_keys", nothing, l.Keep, KeepNewest)
	}
	if known && l.TTL != 0 {
		ps.add("ttl", nothing+"; a record may have a TTL of its own", l.Keep, KeepNewest)
	}
	if l.Keep == KeepUnsettled && l.Storage == StorageMemory {
		ps.add("storage", "%q would lose messages and what was settled with the process, and has no groups: keep %q needs storage %q",
			l.Storage, l.Keep, StorageDisk)
		return
	}
	if l.Storage == StorageMemory && l.OnFull == OnFullDropOldest {
		ps.add("on_full", "means nothing with storage %q, which is bounded and always drops its oldest: leave it out", l.Storage)
	}
	if l.MaxAge != 0 && l.MaxAge < MinMaxAge {
		ps.add("max_age", "%v is below the minimum of %v; 0 means no limit", l.MaxAge, MinMaxAge)
	}
}

func (l *Log) validateSegments(ps *problems) {
	if l.SegmentAge != 0 && l.SegmentAge < MinSegmentAge {
		ps.add("segment_age", "%v is below the minimum of %v; 0 means the default", l.SegmentAge, MinSegmentAge)
	}
	segment := l.SegmentBytes
	if segment != 0 && (segment < MinSegmentBytes || segment > MaxSegmentBytes) {
		ps.add("segment_bytes", "%d is not between the minimum of %d and %d; 0 means the default", segment, MinSegmentBytes, int64(MaxSegmentBytes))
		segment = 0
	}
	least, what := int64(MinMaxBytes), "the minimum"
	if segment != 0 {
		least, what = segment, "one segment: at least segment_bytes,"
	}
	if l.Keep != KeepNewest && l.MaxBytes != 0 && l.MaxBytes < least {
		ps.add("max_bytes", "%d is below %s %d; 0 means no limit", l.MaxBytes, what, least)
	}
}

type problems []Problem

func (ps *problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (ps *problems) name(path, v string) {
	if !ValidName(v) {
		ps.add(path, "%.100q is not a name: %s", v, NameRule)
	}
}

func (ps *problems) oneOf(path, v string, choices ...string) {
	if slices.Contains(choices, v) {
		return
	}
	ps.add(path, "%.100q is not one of %q", v, choices)
}
