// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// DefaultReceiveBuffer bounds what a subscription holds for its reader. Behind it the broker's queue begins.
const DefaultReceiveBuffer = 4 << 20

// SubscribeOption sets up a Subscription.
type SubscribeOption interface{ applySubscribe(s *subscribeConfig) }

// Policy says what the broker does when a subscription's queue there is full.
type Policy = wire.Policy

// The policies. The default is PolicyDropNew for a subscription from the latest record and PolicyCatchUp for one from
// history.
const (
	PolicyDefault    = wire.PolicyDefault
	PolicyDropNew    = wire.PolicyDropNew
	PolicyDropOld    = wire.PolicyDropOld
	PolicyCatchUp    = wire.PolicyCatchUp
	PolicyDisconnect = wire.PolicyDisconnect
)

// Status says how a subscription is doing.
type Status struct {
	// Connected is false from the loss of the broker until the subscription has resumed there or elsewhere.
	Connected bool
	// Err is what was lost, or why the last attempt to resume failed; nil when connected.
	Err error
	// Attempt counts the attempts to resume since the loss, from 1; 0 right after the loss.
	Attempt int
}

type subscribeConfig struct {
	kind          wire.StartKind
	at            uint64            // of StartTime
	offsets       map[uint32]uint64 // of StartOffset
	position      *position
	starts        int // how many options said where to start
	shards        []uint32
	filters       []wire.Filter
	policy        Policy
	queueRecords  uint32
	queueBytes    uint32
	untilMark     bool
	skipLost      bool
	durable       string
	manualCommit  bool
	receiveBuffer int64
	onStatus      func(Status)
	problems      []error
}

type subscribeOption func(s *subscribeConfig)

func (o subscribeOption) applySubscribe(s *subscribeConfig) { o(s) }

func start(o func(s *subscribeConfig)) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) {
		s.starts++
		o(s)
	})
}

// FromLatest starts behind the last record. It is the default.
func FromLatest() SubscribeOption {
	return start(func(s *subscribeConfig) { s.kind = wire.StartLatest })
}

// FromEarliest starts at the first record that is still there.
func FromEarliest() SubscribeOption {
	return start(func(s *subscribeConfig) { s.kind = wire.StartEarliest })
}

// FromOffset starts at an offset of one shard, and subscribes to that shard only. Give it again for others.
func FromOffset(shard uint32, offset uint64) SubscribeOption {
	return FromOffsets(map[uint32]uint64{shard: offset})
}

// FromOffsets starts at an offset per shard, and subscribes to those shards only.
func FromOffsets(offsets map[uint32]uint64) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) {
		if s.offsets == nil {
			s.starts++
			s.offsets = map[uint32]uint64{}
		}
		s.kind = wire.StartOffset
		maps.Copy(s.offsets, offsets)
	})
}

// FromTime starts at the first record that was appended at t or later.
func FromTime(t time.Time) SubscribeOption {
	return start(func(s *subscribeConfig) {
		if t.Before(time.UnixMicro(0)) {
			s.problems = append(s.problems, fmt.Errorf("start time %v lies before 1970", t))
		}
		s.kind, s.at = wire.StartTime, uint64(t.UnixMicro())
	})
}

// FromPosition goes on where Subscription.Position or Watch.Position was taken, in the shards of that.
func FromPosition(token string) PlaceOption {
	p, err := parsePosition(token)
	return placeOption{p, err}
}

// Shards subscribes to the shards named only. Default: all.
func Shards(shards ...uint32) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.shards = append(s.shards, shards...) })
}

// Keys lets through the records whose key matches one of the topic patterns: "/" divides levels, "+" stands for one level, a
// last "#" for all that follow or none, so that device/+/telemetry works. The broker filters: what does not match is not
// sent. Records without a key match nothing. With several filters a record comes once, however many it matches. Default:
// all records.
func Keys(patterns ...string) SubscribeOption { return filters(wire.FilterPattern, patterns) }

// KeyExact lets through the records of these keys. See Keys.
func KeyExact(keys ...string) SubscribeOption { return filters(wire.FilterExact, keys) }

// KeyPrefix lets through the records whose key begins with one of the prefixes, byte for byte. See Keys.
func KeyPrefix(prefixes ...string) SubscribeOption { return filters(wire.FilterPrefix, prefixes) }

func filters(kind wire.FilterKind, values []string) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) {
		for _, v := range values {
			f := wire.Filter{Kind: kind, Value: v}
			if err := f.Validate(); err != nil {
				s.problems = append(s.problems, err)
			}
			s.filters = append(s.filters, f)
		}
		if len(s.filters) > wire.MaxFilters {
			s.problems = append(s.problems, fmt.Errorf("%d filters: at most %d", len(s.filters), wire.MaxFilters))
		}
	})
}

// Overflow says what the broker does when the subscription's queue there is full.
func Overflow(p Policy) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.policy = p })
}

// QueueLimits bounds the subscription's queue at the broker; 0 for its default.
func QueueLimits(records, bytes uint32) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.queueRecords, s.queueBytes = records, bytes })
}

// UntilMark ends the subscription, without an error, at the end of what was committed when it began.
func UntilMark() SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.untilMark = true })
}

// SkipLost goes on at the earliest record, with a Gap, when the place to start or to resume at has been removed by
// retention. Default: the subscription ends with ErrOutOfRange.
func SkipLost() SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) { s.skipLost = true })
}

// ReceiveBuffer bounds what the subscription holds for its reader, in bytes. Default DefaultReceiveBuffer.
func ReceiveBuffer(bytes int64) SubscribeOption {
	return subscribeOption(func(s *subscribeConfig) {
		if bytes < 1 {
			s.problems = append(s.problems, fmt.Errorf("receive buffer of %d bytes: want at least 1", bytes))
		}
		s.receiveBuffer = bytes
	})
}

// OnStatus hears when the subscription or the watch loses its broker, tries to resume, and has resumed. It is called from a
// goroutine of the client and must not block.
func OnStatus(f func(Status)) StatusOption { return statusOption(f) }

func (s *subscribeConfig) check(name string, shards int) *Error {
	fail := func(format string, args ...any) *Error {
		return code.New(code.BadRequest, "subscribe "+name+": "+format, args...)
	}
	if len(s.problems) > 0 {
		return fail("%w", s.problems[0])
	}
	if s.starts > 1 {
		return fail("%d options say where to start", s.starts)
	}
	if s.policy > PolicyDisconnect {
		return fail("policy %d is not known", s.policy)
	}
	if s.manualCommit && s.durable == "" {
		return fail("ManualCommit without Durable")
	}
	seen := map[uint32]bool{}
	for _, shard := range s.shards {
		if seen[shard] {
			return fail("shard %d is named twice", shard)
		}
		seen[shard] = true
		if s.kind == wire.StartOffset && !s.startsAt(shard) {
			return fail("nothing says where to start in shard %d", shard)
		}
	}
	for _, shard := range s.chosen(shards) {
		if int64(shard) >= int64(shards) {
			return fail("there is no shard %d, only %d of them", shard, shards)
		}
	}
	return nil
}

func (s *subscribeConfig) startsAt(shard uint32) bool {
	if s.position != nil {
		_, ok := s.position.find(shard)
		return ok
	}
	_, ok := s.offsets[shard]
	return ok
}

// chosen lists the shards to subscribe to, in order.
func (s *subscribeConfig) chosen(shards int) []uint32 {
	var out []uint32
	switch {
	case len(s.shards) > 0:
		out = slices.Clone(s.shards)
	case s.position != nil:
		for _, p := range s.position.shards {
			out = append(out, p.shard)
		}
	case s.offsets != nil:
		out = slices.Collect(maps.Keys(s.offsets))
	default:
		for i := range shards {
			out = append(out, uint32(i))
		}
	}
	slices.Sort(out)
	return out
}

// start is where to ask the broker to begin in a shard.
func (s *subscribeConfig) start(shard uint32) wire.Start {
	st := wire.Start{Shard: shard, Kind: s.kind, At: s.at}
	if s.position != nil {
		p, _ := s.position.find(shard)
		st.At, st.Generation = p.next, p.generation
	} else if s.kind == wire.StartOffset {
		st.At = s.offsets[shard]
	}
	return st
}
