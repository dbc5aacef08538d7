// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"
)

// LogSpec is the body that creates a log of any preset. What is left out gets the default of the preset.
type LogSpec struct {
	Name          string    `json:"name" doc:"Name within the namespace: [a-z0-9][a-z0-9._-]{0,63}" example:"orders"`
	Shards        *int      `json:"shards,omitempty" doc:"1 to 1024; cannot change later. Default 1"`
	Replicas      *int      `json:"replicas,omitempty" doc:"Copies of each shard; this version has one. Default 1"`
	Ack           *string   `json:"ack,omitempty" doc:"When a record is committed: leader or quorum. Default quorum"`
	MinAck        *string   `json:"min_ack,omitempty" doc:"The least a publish may ask for: none, leader or quorum. Default none"`
	Fsync         *string   `json:"fsync,omitempty" doc:"When an append is flushed: always, interval or never. Default always"`
	FsyncInterval *Duration `json:"fsync_interval,omitempty" doc:"With fsync interval: 1ms to 1m. Default 100ms" example:"100ms"`
	Storage       *string   `json:"storage,omitempty" doc:"disk or memory; keep unsettled needs disk. Default disk"`
	Keep          *string   `json:"keep,omitempty" doc:"all records, until max_age or max_bytes; the newest of each key, for as long as the key lives; or the unsettled: those that not every group, and at least one, has settled, until max_age or max_bytes. Default all for a stream, newest for a cache, unsettled for a queue"`
	MaxKeys       *int64    `json:"max_keys,omitempty" doc:"With keep newest: keys per shard, beyond which new ones are refused; 1 to 1000000000. Default 10000000"`
	TTL           *Duration `json:"ttl,omitempty" doc:"With keep newest: how long a record lives that is put without a TTL of its own; 1ms to 3650d. Default 0s: for good" example:"30m"`
	MaxAge        *Duration `json:"max_age,omitempty" doc:"Records older than this are removed, by whole segments, and lost to groups that have not settled them; at least 1s; not with keep newest. Default 0s: no limit" example:"7d"`
	MaxBytes      *int64    `json:"max_bytes,omitempty" doc:"Bytes kept per shard; at least segment_bytes, and 1 MiB where that is not set; what goes is lost to groups that have not settled it; not with keep newest. Default 0: no limit"`
	OnFull        *string   `json:"on_full,omitempty" doc:"When the disk is full: refuse, or drop-oldest to give up the oldest segments, not with keep newest. Default refuse"`
	DedupWindow   *Duration `json:"dedup_window,omitempty" doc:"How long a dedup id counts, from its first record on: 1s to 1d. Default 2m"`
	SegmentBytes  *int64    `json:"segment_bytes,omitempty" doc:"Size at which a segment is closed: 4 KiB to 4 GiB. Default 0: 256 MiB, 16 MiB with keep newest or unsettled; or a quarter of max_bytes where that is less"`
	SegmentAge    *Duration `json:"segment_age,omitempty" doc:"Age at which a segment is closed; at least 1s. Default 0s: the broker's default"`
}

// Log is the log of a preset that the spec asks for in a namespace, with defaults where it says nothing, and everything
// that is wrong with it. A value that is there is kept as it is: shards 0 is a mistake, not the default.
func (s *LogSpec) Log(preset, tenant, namespace string) (Log, []Problem) {
	l := Log{Tenant: tenant, Namespace: namespace, Name: s.Name, Preset: preset}
	set(&l.Fsync, s.Fsync) // before the defaults: some depend on these two
	set(&l.Keep, s.Keep)
	l.SetDefaults()
	set(&l.Tenant, &tenant)
	set(&l.Namespace, &namespace)
	set(&l.Fsync, s.Fsync)
	set(&l.Shards, s.Shards)
	set(&l.Replicas, s.Replicas)
	set(&l.Ack, s.Ack)
	set(&l.MinAck, s.MinAck)
	set(&l.Storage, s.Storage)
	set(&l.Keep, s.Keep)
	set(&l.MaxKeys, s.MaxKeys)
	set(&l.OnFull, s.OnFull)
	set(&l.MaxBytes, s.MaxBytes)
	set(&l.SegmentBytes, s.SegmentBytes)
	setDuration(&l.FsyncInterval, s.FsyncInterval)
	setDuration(&l.TTL, s.TTL)
	setDuration(&l.MaxAge, s.MaxAge)
	setDuration(&l.DedupWindow, s.DedupWindow)
	setDuration(&l.SegmentAge, s.SegmentAge)
	return l, l.Validate()
}

// LogPatch is the body that changes a log: only what it names. Shards, replicas and storage are here to be refused
// with the reason, unless they name what is.
type LogPatch struct {
	Shards        *int      `json:"shards,omitempty" doc:"Cannot change"`
	Replicas      *int      `json:"replicas,omitempty" doc:"Cannot change in this version"`
	Storage       *string   `json:"storage,omitempty" doc:"Cannot change"`
	Ack           *string   `json:"ack,omitempty" doc:"leader or quorum"`
	MinAck        *string   `json:"min_ack,omitempty" doc:"none, leader or quorum"`
	Fsync         *string   `json:"fsync,omitempty" doc:"always, interval or never"`
	FsyncInterval *Duration `json:"fsync_interval,omitempty" doc:"With fsync interval: 1ms to 1m" example:"100ms"`
	Keep          *string   `json:"keep,omitempty" doc:"From all to newest, with max_age and max_bytes at 0: what is not the newest of its key then goes; or from all to unsettled: what every group, and at least one, has settled then goes. There is no way back"`
	MaxKeys       *int64    `json:"max_keys,omitempty" doc:"With keep newest: 1 to 1000000000; keys that are there stay when there are more"`
	TTL           *Duration `json:"ttl,omitempty" doc:"With keep newest: 1ms to 3650d, 0s: for good; concerns records put from now on" example:"30m"`
	MaxAge        *Duration `json:"max_age,omitempty" doc:"0s: no limit; not with keep newest" example:"7d"`
	MaxBytes      *int64    `json:"max_bytes,omitempty" doc:"0: no limit; not with keep newest"`
	OnFull        *string   `json:"on_full,omitempty" doc:"refuse, or drop-oldest, not with keep newest"`
	DedupWindow   *Duration `json:"dedup_window,omitempty" doc:"1s to 1d; ids that an earlier, shorter window has let go do not come back"`
	SegmentBytes  *int64    `json:"segment_bytes,omitempty" doc:"0: the default; concerns segments opened from now on"`
	SegmentAge    *Duration `json:"segment_age,omitempty" doc:"0s: the default"`
}

// Apply changes the log and lists everything that is wrong with the result.
func (p *LogPatch) Apply(l *Log) []Problem {
	var fixed problems
	if p.Shards != nil && *p.Shards != l.Shards {
		fixed.add("shards", "cannot change from %d to %d: keys would move to other shards and lose their order; create a new %s", l.Shards, *p.Shards, l.Preset)
	}
	if p.Storage != nil && *p.Storage != l.Storage {
		fixed.add("storage", "cannot change from %q to %q: create a new %s", l.Storage, *p.Storage, l.Preset)
	}
	p.applyKeep(l, &fixed)
	set(&l.Replicas, p.Replicas)
	set(&l.Ack, p.Ack)
	set(&l.MinAck, p.MinAck)
	set(&l.MaxKeys, p.MaxKeys)
	set(&l.OnFull, p.OnFull)
	set(&l.MaxBytes, p.MaxBytes)
	set(&l.SegmentBytes, p.SegmentBytes)
	if p.Fsync != nil && *p.Fsync != l.Fsync {
		l.Fsync, l.FsyncInterval = *p.Fsync, 0
		if l.Fsync == FsyncInterval {
			l.FsyncInterval = DefaultFsyncInterval
		}
	}
	setDuration(&l.FsyncInterval, p.FsyncInterval)
	setDuration(&l.TTL, p.TTL)
	setDuration(&l.MaxAge, p.MaxAge)
	setDuration(&l.DedupWindow, p.DedupWindow)
	setDuration(&l.SegmentAge, p.SegmentAge)
	return append(fixed, l.Validate()...)
}

// applyKeep changes what is kept, in the one direction in which every reader is told what it misses: the log of everything
// holds what the index of the newest is made from, and whatever a group has not settled, and what goes later goes as by
// retention. The other way round there is no such log: what was replaced or settled is gone, and what was carried past a
// dropped segment lies at no offset, so that a reader from the earliest offset on would take the rest for all there ever was.
func (p *LogPatch) applyKeep(l *Log, fixed *problems) {
	if p.Keep == nil || *p.Keep == l.Keep {
		return
	}
	const no = "cannot change from %q to %.100q: records that were %s are gone, and a reader of all would not be told of every %s that is left; create a new %s"
	switch l.Keep {
	case KeepNewest:
		fixed.add("keep", no, l.Keep, *p.Keep, "replaced", "key", l.Preset)
		return
	case KeepUnsettled:
		fixed.add("keep", no, l.Keep, *p.Keep, "settled", "message", l.Preset)
		return
	}
	if l.Keep = *p.Keep; l.Keep == KeepNewest {
		l.MaxKeys = DefaultMaxKeys
	}
}

func set[T any](dst, v *T) {
	if v != nil {
		*dst = *v
	}
}

func setDuration(dst *time.Duration, v *Duration) {
	if v != nil {
		*dst = time.Duration(*v)
	}
}

// LogDocument is a log as the API shows it.
type LogDocument struct {
	ID            string    `json:"id" doc:"Random, never used again; tells a log from a later one of the same name"`
	Tenant        string    `json:"tenant"`
	Namespace     string    `json:"namespace"`
	Name          string    `json:"name"`
	Shards        int       `json:"shards"`
	Replicas      int       `json:"replicas"`
	Ack           string    `json:"ack"`
	MinAck        string    `json:"min_ack"`
	Fsync         string    `json:"fsync"`
	FsyncInterval *Duration `json:"fsync_interval,omitempty" doc:"Only with fsync interval"`
	Storage       string    `json:"storage"`
	Keep          string    `json:"keep" doc:"all records, the newest of each key, or the unsettled"`
	MaxKeys       int64     `json:"max_keys,omitempty" doc:"Per shard; only with keep newest"`
	TTL           Duration  `json:"ttl,omitempty" doc:"Of records put without one; only with keep newest, and not there where they live for good"`
	MaxAge        Duration  `json:"max_age" doc:"0s: no limit"`
	MaxBytes      int64     `json:"max_bytes" doc:"Per shard; 0: no limit"`
	OnFull        string    `json:"on_full" doc:"When the disk is full"`
	DedupWindow   Duration  `json:"dedup_window" doc:"How long a dedup id counts"`
	SegmentBytes  int64     `json:"segment_bytes" doc:"0: the default"`
	SegmentAge    Duration  `json:"segment_age" doc:"0s: the default"`
	CreatedAt     time.Time `json:"created_at"`
	Version       uint64    `json:"version" doc:"Changes with every change; the ETag quotes it"`
}

// NewLogDocument shows a log.
func NewLogDocument(l *Log) LogDocument {
	s := LogDocument{
		ID: l.ID.String(), Tenant: l.Tenant, Namespace: l.Namespace, Name: l.Name,
		Shards: l.Shards, Replicas: l.Replicas, Ack: l.Ack, MinAck: l.MinAck,
		Fsync: l.Fsync, Storage: l.Storage, Keep: l.Keep, MaxKeys: l.MaxKeys, TTL: Duration(l.TTL),
		MaxAge: Duration(l.MaxAge), MaxBytes: l.MaxBytes, OnFull: l.OnFull, DedupWindow: Duration(l.DedupWindow),
		SegmentBytes: l.SegmentBytes, SegmentAge: Duration(l.SegmentAge),
		CreatedAt: l.CreatedAt.UTC(), Version: l.Version,
	}
	if l.Fsync == FsyncInterval {
		d := Duration(l.FsyncInterval)
		s.FsyncInterval = &d
	}
	return s
}

// SettingsDiffer lists the settings in which two logs of one name differ, as "field: is X, asked Y".
func SettingsDiffer(have, want *Log) []Problem {
	var ps problems
	diff := func(path string, h, w any) {
		if h != w {
			ps.add(path, "is %v, asked for %v", h, w)
		}
	}
	diff("preset", have.Preset, want.Preset)
	diff("shards", have.Shards, want.Shards)
	diff("replicas", have.Replicas, want.Replicas)
	diff("ack", have.Ack, want.Ack)
	diff("min_ack", have.MinAck, want.MinAck)
	diff("fsync", have.Fsync, want.Fsync)
	diff("fsync_interval", Duration(have.FsyncInterval), Duration(want.FsyncInterval))
	diff("storage", have.Storage, want.Storage)
	diff("keep", have.Keep, want.Keep)
	diff("max_keys", have.MaxKeys, want.MaxKeys)
	diff("ttl", Duration(have.TTL), Duration(want.TTL))
	diff("max_age", Duration(have.MaxAge), Duration(want.MaxAge))
	diff("max_bytes", have.MaxBytes, want.MaxBytes)
	diff("on_full", have.OnFull, want.OnFull)
	diff("dedup_window", Duration(have.DedupWindow), Duration(want.DedupWindow))
	diff("segment_bytes", have.SegmentBytes, want.SegmentBytes)
	diff("segment_age", Duration(have.SegmentAge), Duration(want.SegmentAge))
	return ps
}

// TokenRequest asks for a token.
type TokenRequest struct {
	APIKey string `json:"api_key" doc:"As it was shown when it was made" example:"mgk_..."`
}

// TokenResponse is a token for both planes.
type TokenResponse struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// ETag is the entity tag of a version.
func ETag(version uint64) string { return fmt.Sprintf("%q", fmt.Sprint(version)) }
