// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// plan is what a seed draws before anything happens: the logs, the clients and the faults.
type plan struct {
	length  time.Duration
	logs    []logPlan
	faults  []fault
	latency time.Duration
	flush   time.Duration // about how long one takes
	aimed   bool          // writes fail when it matters
}

// logPlan is one log, and who works with it.
type logPlan struct {
	control.Log
	shard history.Shard // its one shard, as the history calls it

	publishers, named, anonymous, conditional, dedup int
	subscribers, cursors, lasts                      int
	cachers                                          int // then it is a cache, and nobody else's
	pushers                                          int // then it is a queue
	groups                                           []groupPlan
	trims                                            bool
	changes                                          bool // of its settings
}

// fault is one thing that goes wrong.
type fault struct {
	at   time.Duration
	kind string
}

// Kinds of faults.
const (
	kill       = "kill"
	powerCut   = "power cut"
	killAt     = "kill at a call" // of the file system
	powerCutAt = "power cut at a call"
	stop       = "orderly stop"
	pause      = "pause"
	clockStep  = "clock step"
	breakConns = "connections broken"
	oneWay     = "one-way cut"
	catalogOut = "catalog away"
	writeFails = "write fails"
	shortWrite = "short write"
	flushFails = "flush fails"
	namesFail  = "directory flush fails"
	createFail = "create fails"
	removeFail = "remove fails"
	readFails  = "read fails"
	diskFull   = "disk full"
	slowDisk   = "slow disk"
	storm      = "slow flushes, broken connections, then a flush that fails"
	shortDeath = "short write, and the end soon after"
)

// faultKinds are drawn from, those that find most more often.
var faultKinds = []string{
	kill, killAt, powerCut, powerCut, powerCutAt, powerCutAt, powerCutAt, stop, pause, clockStep, breakConns, breakConns, oneWay,
	catalogOut, writeFails, shortWrite, flushFails, flushFails, namesFail, createFail, removeFail, readFails, diskFull, slowDisk, storm, storm,
	shortDeath,
}

func draw(rng *rand.Rand) plan {
	p := plan{
		length:  time.Duration(1+rng.IntN(3)) * time.Second,
		latency: time.Duration(20+rng.IntN(2000)) * time.Microsecond,
		flush:   time.Duration(50+rng.IntN(5000)) * time.Microsecond,
	}
	if rng.IntN(4) == 0 {
		p.flush = time.Duration(5+rng.IntN(60)) * time.Millisecond
	}
	for i := range 1 + rng.IntN(2) {
		p.logs = append(p.logs, drawLog(rng, i))
	}
	if rng.IntN(2) == 0 {
		p.logs = append(p.logs, drawCache(rng, len(p.logs)))
	}
	if rng.IntN(2) == 0 {
		p.logs = append(p.logs, drawQueue(rng, len(p.logs)))
	}
	for range rng.IntN(7) {
		p.faults = append(p.faults, fault{
			at: time.Duration(rng.Int64N(int64(p.length))), kind: faultKinds[rng.IntN(len(faultKinds))],
		})
	}
	p.aimed = rng.IntN(3) == 0
	return p
}

func oneOf[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func drawLog(rng *rand.Rand, i int) logPlan {
	l := logPlan{Log: control.Log{
		ID: batch.LogID{byte(i + 1)}, Name: fmt.Sprintf("log%d", i), Shards: 1,
		Fsync:        oneOf(rng, control.FsyncAlways, control.FsyncAlways, control.FsyncAlways, control.FsyncInterval, control.FsyncNever),
		Storage:      oneOf(rng, control.StorageDisk, control.StorageDisk, control.StorageDisk, control.StorageDisk, control.StorageDisk, control.StorageMemory),
		MinAck:       oneOf(rng, control.AckNone, control.AckQuorum, control.AckQuorum),
		OnFull:       oneOf(rng, control.OnFullRefuse, control.OnFullDropOldest),
		SegmentBytes: oneOf[int64](rng, 4<<10, 4<<10, 8<<10, 1<<20),
		DedupWindow:  time.Hour,
	}}
	l.SetDefaults()
	if l.Fsync == control.FsyncInterval {
		l.FsyncInterval = time.Duration(1+rng.IntN(300)) * time.Millisecond
	}
	l.shard = history.Shard{Log: l.Name}
	l.publishers, l.named, l.anonymous = rng.IntN(3), rng.IntN(2), rng.IntN(2)
	if l.publishers+l.named == 0 {
		l.publishers = 1
	}
	l.dedup, l.conditional = rng.IntN(2), rng.IntN(4)
	l.subscribers, l.cursors, l.lasts = 1+rng.IntN(4), rng.IntN(3), rng.IntN(3)
	if rng.IntN(3) == 0 {
		l.MaxBytes = oneOf[int64](rng, 16<<10, 32<<10, 64<<10)
	}
	if rng.IntN(4) == 0 {
		l.MaxAge = time.Duration(300+rng.IntN(1500)) * time.Millisecond
	}
	l.trims, l.changes = rng.IntN(4) == 0, rng.IntN(4) == 0
	if rng.IntN(5) == 0 {
		l.newest()
	}
	return l
}

// newest makes it a log that keeps the newest record of each key.
func (l *logPlan) newest() {
	l.Keep, l.Storage, l.OnFull, l.MaxBytes, l.MaxAge = control.KeepNewest, control.StorageDisk, control.OnFullRefuse, 0, 0
	l.SetDefaults()
}

// drawCache draws a log whose clients read and write by key.
func drawCache(rng *rand.Rand, i int) logPlan {
	l := logPlan{Log: control.Log{
		ID: batch.LogID{byte(i + 1)}, Name: fmt.Sprintf("cache%d", i), Shards: 1, Preset: control.PresetCache,
		MinAck: oneOf(rng, control.AckNone, control.AckQuorum), SegmentBytes: oneOf[int64](rng, 4<<10, 4<<10, 8<<10),
		DedupWindow: time.Hour,
	}}
	l.SetDefaults()
	l.shard = history.Shard{Log: l.Name}
	l.cachers, l.changes = 2+rng.IntN(4), rng.IntN(4) == 0
	return l
}

// untouched says that nothing but a trim gives up what the log holds.
func (l *logPlan) untouched() bool {
	return l.MaxBytes == 0 && l.MaxAge == 0 && l.OnFull == control.OnFullRefuse && l.Storage == control.StorageDisk &&
		l.Keep == control.KeepAll
}

// durable says that what is acknowledged outlives the power.
func (l *logPlan) durable() bool {
	return l.Storage == control.StorageDisk && l.Fsync == control.FsyncAlways
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, latency %s, flush %s;", p.length, p.latency, p.flush)
	for i := range p.logs {
		l := &p.logs[i]
		fmt.Fprintf(&b, " %s: %s fsync %s %s min-ack %s segments %d max-bytes %d max-age %s on-full %s keep %s;", l.Name, l.Storage, l.Fsync,
			l.FsyncInterval, l.MinAck, l.SegmentBytes, l.MaxBytes, l.MaxAge, l.OnFull, l.Keep)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, " %s at %s;", f.kind, f.at)
	}
	return b.String()
}
