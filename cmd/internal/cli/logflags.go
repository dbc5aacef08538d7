// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/control"
)

// logFlags are the settings of a log as flags. Which of them are given decides what is sent: what
// is not named keeps the server's default, or what it is. All other rules are the server's, which says
// everything that is wrong at once.
type logFlags struct {
	shards, replicas                  int
	ack, minAck, fsync, storage       string
	keep, onFull                      string
	maxKeys                           int64
	fsyncInterval, maxAge, segmentAge duration
	ttl, dedupWindow                  duration
	maxBytes, segmentBytes            byteSize
}

func (f *logFlags) define(cmd *cobra.Command, k collection, create bool) {
	flags := cmd.Flags()
	// A change has no defaults: what is not named stays as it is.
	word, one, keys := func(string) string { return "" }, 0, int64(0)
	defaults := control.Log{Preset: k.preset}
	defaults.SetDefaults()
	keep := "which records stay: all, until --max-age or --max-bytes; the newest of each key; or, until then, the unsettled: those that not every group has settled"
	if !create {
		keep += "; from all to one of the others only"
	}
	if create {
		word, one, keys = func(s string) string { return s }, 1, control.DefaultMaxKeys
		f.fsyncInterval = duration(control.DefaultFsyncInterval)
		f.dedupWindow = duration(control.DefaultDedupWindow)
		flags.IntVar(&f.shards, "shards", 1, "in how many parts the "+k.preset+" is kept; cannot change later")
		flags.StringVar(&f.storage, "storage", control.StorageDisk, "disk or memory (gone with the process; not with --keep unsettled)")
		complete(cmd, "storage", control.StorageDisk, control.StorageMemory)
	}
	flags.IntVar(&f.replicas, "replicas", one, "copies of each shard; one node holds one")
	flags.StringVar(&f.ack, "ack", word(control.AckQuorum), "when a record is committed: leader or quorum")
	flags.StringVar(&f.minAck, "min-ack", word(control.AckNone), "the least a publish may ask for: none, leader or quorum")
	flags.StringVar(&f.fsync, "fsync", word(control.FsyncAlways), "when records are flushed to the disk: always (before the ack), interval or never")
	flags.Var(&f.fsyncInterval, "fsync-interval", "with --fsync interval: how often")
	flags.StringVar(&f.keep, "keep", word(defaults.Keep), keep)
	flags.Int64Var(&f.maxKeys, "max-keys", keys, "with --keep newest: refuse new keys beyond this many in a shard")
	flags.Var(&f.ttl, "ttl", "with --keep newest: how long a record lives that is put without a TTL, such as 30m; 0s is for good")
	flags.Var(&f.maxAge, "max-age", "remove records older than this, such as 7d; 0s is no limit; not with --keep newest")
	flags.Var(&f.maxBytes, "max-bytes", "keep at most this much per shard, such as 10GiB; 0 is no limit; not with --keep newest")
	flags.StringVar(&f.onFull, "on-full", word(control.OnFullRefuse), "when the disk is full: refuse records, or drop-oldest to give up the oldest ones (not with --keep newest)")
	flags.Var(&f.dedupWindow, "dedup-window", "how long a --dedup-id of a record counts, from its first record on")
	flags.Var(&f.segmentBytes, "segment-bytes", "size at which a segment file is closed; 0 is the default")
	flags.Var(&f.segmentAge, "segment-age", "age at which a segment file is closed; 0s is the default")
	complete(cmd, "ack", control.AckLeader, control.AckQuorum)
	complete(cmd, "min-ack", control.AckNone, control.AckLeader, control.AckQuorum)
	complete(cmd, "keep", control.KeepAll, control.KeepNewest, control.KeepUnsettled)
	complete(cmd, "on-full", control.OnFullRefuse, control.OnFullDropOldest)
	complete(cmd, "fsync", control.FsyncAlways, control.FsyncInterval, control.FsyncNever)
}

// check refuses here what no server of this release can do, so that the remedy fits the flag.
func (f *logFlags) check(flags *pflag.FlagSet, done string) error {
	if !flags.Changed("replicas") || f.replicas <= 1 {
		return nil
	}
	return &exit.Error{
		Err:  fmt.Errorf("--replicas %d: one node holds one copy, and this release runs on one node", f.replicas),
		Code: exit.Refused,
		Data: "nothing was " + done,
		Do:   "use --replicas 1",
	}
}

var logSettings = []string{
	"shards", "replicas", "ack", "min-ack", "fsync", "fsync-interval", "storage",
	"keep", "max-keys", "ttl", "max-age", "max-bytes", "on-full", "dedup-window", "segment-bytes", "segment-age",
}

func (f *logFlags) any(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(logSettings, flags.Changed)
}

func (f *logFlags) spec(flags *pflag.FlagSet, name string) control.LogSpec {
	return control.LogSpec{
		Name:   name,
		Shards: given(flags, "shards", f.shards), Replicas: given(flags, "replicas", f.replicas),
		Ack: given(flags, "ack", f.ack), MinAck: given(flags, "min-ack", f.minAck),
		Fsync: given(flags, "fsync", f.fsync), FsyncInterval: given(flags, "fsync-interval", control.Duration(f.fsyncInterval)),
		Storage: given(flags, "storage", f.storage), OnFull: given(flags, "on-full", f.onFull),
		Keep: given(flags, "keep", f.keep), MaxKeys: given(flags, "max-keys", f.maxKeys), TTL: given(flags, "ttl", control.Duration(f.ttl)),
		DedupWindow: given(flags, "dedup-window", control.Duration(f.dedupWindow)),
		MaxAge:      given(flags, "max-age", control.Duration(f.maxAge)), MaxBytes: given(flags, "max-bytes", int64(f.maxBytes)),
		SegmentBytes: given(flags, "segment-bytes", int64(f.segmentBytes)), SegmentAge: given(flags, "segment-age", control.Duration(f.segmentAge)),
	}
}

func (f *logFlags) patch(flags *pflag.FlagSet) control.LogPatch {
	return control.LogPatch{
		Replicas: given(flags, "replicas", f.replicas),
		Ack:      given(flags, "ack", f.ack), MinAck: given(flags, "min-ack", f.minAck), OnFull: given(flags, "on-full", f.onFull),
		Keep: given(flags, "keep", f.keep), MaxKeys: given(flags, "max-keys", f.maxKeys), TTL: given(flags, "ttl", control.Duration(f.ttl)),
		DedupWindow: given(flags, "dedup-window", control.Duration(f.dedupWindow)),
		Fsync:       given(flags, "fsync", f.fsync), FsyncInterval: given(flags, "fsync-interval", control.Duration(f.fsyncInterval)),
		MaxAge: given(flags, "max-age", control.Duration(f.maxAge)), MaxBytes: given(flags, "max-bytes", int64(f.maxBytes)),
		SegmentBytes: given(flags, "segment-bytes", int64(f.segmentBytes)), SegmentAge: given(flags, "segment-age", control.Duration(f.segmentAge)),
	}
}

func given[T any](flags *pflag.FlagSet, name string, value T) *T {
	if !flags.Changed(name) {
		return nil
	}
	return &value
}

// byteSize is a size as a flag.
type byteSize int64

func (b *byteSize) String() string { return control.FormatBytes(int64(*b)) }
func (b *byteSize) Type() string   { return "size" }
func (b *byteSize) Set(s string) error {
	n, err := control.ParseBytes(s)
	if err != nil {
		return err
	}
	*b = byteSize(n)
	return nil
}

// duration is a span of time as a flag, in the notation of the REST documents: also in days.
type duration control.Duration

// String leaves out zero, which flags' help would show as a default where none is.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return control.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }
func (d *duration) Set(s string) error {
	v, err := control.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}
