// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"strings"
	"time"
)

// The bounds of a group's settings.
const (
	MinAckWait  = 100 * time.Millisecond
	MaxAckWait  = 12 * time.Hour
	MinBackoff  = time.Millisecond
	MaxBackoff  = 24 * time.Hour
	MaxBackoffs = 16
	MaxDead     = 100_000
	// MaxPriorityAge bounds how long what has a higher priority may go first.
	MaxPriorityAge = 24 * time.Hour
)

// GroupSettings say how a group hands out. Times are microseconds.
type GroupSettings struct {
	AckWait     uint64   // how long a consumer may hold a message without a word
	MaxAttempts uint32   // how many attempts may end before the message is a dead letter; 0 = any number
	Backoff     []uint64 // waits before a further attempt; the last repeats, none = at once
	OrderByKey  bool     // one message of a key at a time
	FairKeys    bool     // keys take turns
	Paused      bool     // hand out nothing
	DeadExpired bool     // what expires is a dead letter instead of settled
	PriorityAge uint64   // what has waited longer goes before what has a higher priority; 0 = never
	MaxDead     uint32   // how many dead letters there may be before the group stands still
}

// DefaultGroupSettings are those of a group of which nothing else is said.
func DefaultGroupSettings() GroupSettings {
	us := func(d time.Duration) uint64 { return uint64(d / time.Microsecond) }
	return GroupSettings{
		AckWait: us(30 * time.Second), MaxAttempts: 10, PriorityAge: us(time.Minute), MaxDead: 10_000,
		Backoff: []uint64{us(100 * time.Millisecond), us(time.Second), us(5 * time.Second), us(30 * time.Second), us(time.Minute)},
	}
}

// Validate refuses settings out of bounds, and names all that is wrong with them. What stands in a log is not held to it: a
// later release may have other bounds.
func (s GroupSettings) Validate() error {
	var faults []string
	within := func(name string, us uint64, least, most time.Duration) {
		if us < uint64(least/time.Microsecond) || us > uint64(most/time.Microsecond) {
			faults = append(faults, fmt.Sprintf("%s of %s must be between %v and %v", name, inMicros(us), least, most))
		}
	}
	within("ack wait", s.AckWait, MinAckWait, MaxAckWait)
	if len(s.Backoff) > MaxBackoffs {
		faults = append(faults, fmt.Sprintf("%d waits of backoff are more than %d", len(s.Backoff), MaxBackoffs))
	}
	for i, us := range s.Backoff[:min(len(s.Backoff), MaxBackoffs)] {
		within(fmt.Sprintf("backoff %d", i+1), us, MinBackoff, MaxBackoff)
	}
	within("priority age", s.PriorityAge, 0, MaxPriorityAge)
	if s.MaxDead < 1 || s.MaxDead > MaxDead {
		faults = append(faults, fmt.Sprintf("a bound of %d dead letters must be between 1 and %d", s.MaxDead, MaxDead))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("group settings: %s", strings.Join(faults, "; "))
}

// inMicros writes what may be more than a duration holds.
func inMicros(us uint64) string {
	if us > maxScheduleUs {
		return fmt.Sprintf("%dµs", us)
	}
	return (time.Duration(us) * time.Microsecond).String()
}

// Flags of settings, one bit each.
const (
	settingOrderByKey = 1 << iota
	settingFairKeys
	settingPaused
	settingDeadExpired
	knownSettings = 1<<iota - 1
)

func (s GroupSettings) flags() (flags byte) {
	for _, x := range []struct {
		set  bool
		flag byte
	}{{s.OrderByKey, settingOrderByKey}, {s.FairKeys, settingFairKeys}, {s.Paused, settingPaused}, {s.DeadExpired, settingDeadExpired}} {
		if x.set {
			flags |= x.flag
		}
	}
	return flags
}

// AppendTo appends the settings as control entries and frames have them; of the backoff the first MaxBackoffs waits.
func (s GroupSettings) AppendTo(dst []byte) []byte {
	dst = appendUvarint(dst, s.AckWait)
	dst = appendUvarint(dst, uint64(s.MaxAttempts))
	backoff := s.Backoff[:min(len(s.Backoff), MaxBackoffs)]
	dst = appendUvarint(dst, uint64(len(backoff)))
	for _, us := range backoff {
		dst = appendUvarint(dst, us)
	}
	dst = append(dst, s.flags())
	dst = appendUvarint(dst, s.PriorityAge)
	return appendUvarint(dst, uint64(s.MaxDead))
}

// Size is what AppendTo appends, in bytes.
func (s GroupSettings) Size() int {
	backoff := s.Backoff[:min(len(s.Backoff), MaxBackoffs)]
	n := uvarintSize(s.AckWait) + uvarintSize(uint64(s.MaxAttempts)) + uvarintSize(uint64(len(backoff))) + 1 +
		uvarintSize(s.PriorityAge) + uvarintSize(uint64(s.MaxDead))
	for _, us := range backoff {
		n += uvarintSize(us)
	}
	return n
}

// ReadGroupSettings reads the settings that p begins with, and says how many bytes they took.
func ReadGroupSettings(p []byte) (GroupSettings, int, error) {
	c := cursor{b: p}
	s := parseGroupSettings(&c)
	if c.err != nil {
		return GroupSettings{}, 0, fault("read group settings", c.at, c.err)
	}
	return s, c.pos, nil
}

func parseGroupSettings(c *cursor) GroupSettings {
	s := GroupSettings{AckWait: c.uvarint(), MaxAttempts: c.u32()}
	n := c.length()
	if n > MaxBackoffs {
		c.fail(ErrEntry)
	}
	for ; n > 0 && c.err == nil; n-- {
		s.Backoff = append(s.Backoff, c.uvarint())
	}
	flags := c.upTo(knownSettings)
	s.OrderByKey, s.FairKeys = flags&settingOrderByKey != 0, flags&settingFairKeys != 0
	s.Paused, s.DeadExpired = flags&settingPaused != 0, flags&settingDeadExpired != 0
	s.PriorityAge, s.MaxDead = c.uvarint(), c.u32()
	return s
}

// GroupTotals are what has happened in a group since its counting began.
type GroupTotals struct {
	Acked, Expired, Cancelled, Lost, Discarded uint64
	Dead                                       uint64 // that ever became dead letters
	Redriven                                   uint64
	Attempts                                   uint64 // that ended, and not with an ack
	Base                                       uint64 // the offset at which the counting began
}

func (t *GroupTotals) fields() [9]*uint64 {
	return [9]*uint64{&t.Acked, &t.Expired, &t.Cancelled, &t.Lost, &t.Discarded, &t.Dead, &t.Redriven, &t.Attempts, &t.Base}
}

// AppendTo appends the totals as control entries and frames have them.
func (t GroupTotals) AppendTo(dst []byte) []byte {
	for _, v := range t.fields() {
		dst = appendUvarint(dst, *v)
	}
	return dst
}

// Size is what AppendTo appends, in bytes.
func (t GroupTotals) Size() (n int) {
	for _, v := range t.fields() {
		n += uvarintSize(*v)
	}
	return n
}

// ReadGroupTotals reads the totals that p begins with, and says how many bytes they took.
func ReadGroupTotals(p []byte) (GroupTotals, int, error) {
	c := cursor{b: p}
	t := parseGroupTotals(&c)
	if c.err != nil {
		return GroupTotals{}, 0, fault("read group totals", c.at, c.err)
	}
	return t, c.pos, nil
}

func parseGroupTotals(c *cursor) (t GroupTotals) {
	for _, v := range t.fields() {
		*v = c.uvarint()
	}
	return t
}
