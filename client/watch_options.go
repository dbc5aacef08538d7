// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"margay.dev/client/internal/fold"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// DefaultWatchBuffer bounds what a watch holds for its reader. One that is slower falls behind: its changes wait in the log,
// and no other watch waits with it.
const DefaultWatchBuffer = 1 << 20

// WatchOption sets up a Watch, or a Mirror.
type WatchOption interface{ applyWatch(w *watchConfig) }

// PlaceOption says where to start, in a Watch or a Subscription: FromPosition.
type PlaceOption interface {
	SubscribeOption
	WatchOption
}

// StatusOption hears how a Watch, a Subscription or a Consumer is doing: OnStatus.
type StatusOption interface {
	SubscribeOption
	WatchOption
	ConsumeOption
}

type watchConfig struct {
	selection
	snapshot bool
	versions bool // starts at version
	version  uint64
	position *position
	starts   int
	conflate bool
	buffer   int64
	onStatus func(Status)
	problems []error
}

type watchOption func(w *watchConfig)

func (o watchOption) applyWatch(w *watchConfig) { o(w) }

func watchStart(o func(w *watchConfig)) WatchOption {
	return watchOption(func(w *watchConfig) {
		w.starts++
		o(w)
	})
}

// FromNow tells what changes from now on. It is the default.
func FromNow() WatchOption { return watchStart(func(*watchConfig) {}) }

// WithSnapshot tells first what there is: each value as a Put, then SnapshotComplete, also when there is none; then every
// change of it.
func WithSnapshot() WatchOption { return watchStart(func(w *watchConfig) { w.snapshot = true }) }

// FromVersion tells the changes behind a version, as Put and Get return it. It is for the watch of one Key, or of a cache of
// one shard; for others, versions do not say a place: use FromPosition.
func FromVersion(version uint64) WatchOption {
	return watchStart(func(w *watchConfig) { w.versions, w.version = true, version })
}

// Conflate lets newer changes of a key replace older ones that the reader has not taken: one who is slow is told what
// became of a key in the end. Change.Skipped says how many it stands for.
func Conflate() WatchOption { return watchOption(func(w *watchConfig) { w.conflate = true }) }

// WatchBuffer bounds what the watch holds for its reader, in bytes. Default DefaultWatchBuffer.
func WatchBuffer(bytes int64) WatchOption {
	return watchOption(func(w *watchConfig) {
		if bytes < 1 {
			w.problems = append(w.problems, fmt.Errorf("watch buffer of %d bytes: want at least 1", bytes))
		}
		w.buffer = bytes
	})
}

// placeOption is FromPosition.
type placeOption struct {
	at  *position
	err error
}

func (o placeOption) applySubscribe(s *subscribeConfig) {
	s.starts++
	if o.err != nil {
		s.problems = append(s.problems, o.err)
	}
	s.kind, s.position = wire.StartOffset, o.at
}

func (o placeOption) applyWatch(w *watchConfig) {
	w.starts++
	if o.err != nil {
		w.problems = append(w.problems, o.err)
	}
	w.position = o.at
}

type statusOption func(Status)

func (o statusOption) applySubscribe(s *subscribeConfig) { s.onStatus = o }
func (o statusOption) applyWatch(w *watchConfig)         { w.onStatus = o }

// check refuses what makes no sense, and says where each of the shards starts, nil for now.
func (w *watchConfig) check(what string, r *route, shards []uint32) ([]fold.Start, *Error) {
	fail := func(format string, args ...any) ([]fold.Start, *Error) {
		return nil, code.New(code.BadRequest, what+": "+format, args...)
	}
	if err := w.selection.check(what); err != nil {
		return nil, err
	}
	switch {
	case len(w.problems) > 0:
		return fail("%w", w.problems[0])
	case w.starts > 1:
		return fail("%d options say where to start", w.starts)
	case w.versions && len(shards) > 1:
		return fail("FromVersion of keys in %d shards: use FromPosition", len(shards))
	case w.versions:
		return []fold.Start{{Offset: w.version}}, nil
	case w.position == nil:
		return nil, nil
	case w.position.log != r.info.Log:
		return fail("the position belongs to another log, perhaps to a deleted one of this name")
	}
	starts := make([]fold.Start, len(shards))
	for i, s := range shards {
		at, ok := w.position.find(s)
		if !ok {
			return fail("the position says nothing about shard %d", s)
		}
		starts[i] = fold.Start{Offset: at.next, Generation: at.generation}
	}
	return starts, nil
}
