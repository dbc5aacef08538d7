// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"math"
	"strings"

	"margay.dev/wire/batch"
)

const groupID = 0xfedcba9876543210

func workers() batch.Group {
	s := batch.DefaultGroupSettings()
	s.OrderByKey, s.DeadExpired = true, true
	return batch.Group{
		ID: groupID, Name: "workers", Resets: 2, Created: start, Updated: start + 9, Settings: s, Cursor: 500,
		Totals: batch.GroupTotals{Acked: 400, Expired: 3, Cancelled: 2, Lost: 1, Discarded: 4, Dead: 5, Redriven: 6, Attempts: 70, Base: 100},
	}
}

// groupCases are what a shard's log says of groups.
func groupCases() []vectorCase {
	control := func(name, about string, entries ...batch.Entry) vectorCase {
		return vectorCase{name: name, about: about, form: "stored", raw: assigned(batch.BuildControl(entries...),
			batch.Assigned{Sequence: 12, BaseOffset: 120, Generation: 4, AppendTime: start, Flushed: 11})}
	}
	odd := batch.GroupSettings{FairKeys: true, Paused: true, Backoff: make([]uint64, batch.MaxBackoffs), AckWait: math.MaxUint64}
	attempt := batch.Attempt{
		Group: groupID, Offset: 510, Attempts: 3, Due: start + 30, Expires: start + 900, AppendTime: start, Key: 0x0102030405060708,
		Priority: 9, Retry: true, Count: 1, Error: "the mail server is busy",
	}
	dead := batch.Dead{
		Group: groupID, Offset: 511, Attempts: 10, Reason: batch.DeadAttempts, At: start + 40, AppendTime: start, Key: 7, Priority: 1,
		Error: strings.Repeat("e", batch.MaxGroupReason),
	}
	return []vectorCase{
		control("control_group", "a group; one with the longest name and every other setting; one that was removed", workers(),
			batch.Group{ID: 1, Name: strings.Repeat("n", batch.MaxGroupName), Settings: odd},
			batch.Group{ID: 2, Name: "gone", Removed: true, Updated: -1}),
		control("control_settled", "messages were settled in each way", batch.Settled{Group: groupID, How: batch.SettledAcked, Ranges: []batch.OffsetRange{
			{From: 500, To: 510}, {From: 510, To: 511}, {From: 1 << 40, To: math.MaxUint64},
		}},
			batch.Settled{Group: groupID, How: batch.SettledExpired, Ranges: []batch.OffsetRange{{To: 1}}},
			batch.Settled{Group: groupID, How: batch.SettledCancelled, Ranges: []batch.OffsetRange{{From: 7, To: 8}}},
			batch.Settled{Group: groupID, How: batch.SettledLost, Ranges: []batch.OffsetRange{{From: 0, To: 500}}}, batch.Settled{Group: 1}),
		control("control_attempt", "a message waits for its fourth attempt, another for its first", attempt, batch.Attempt{Group: groupID, Offset: 1 << 40, Due: -1}),
		control("control_dead", "a dead letter, and what became of three others", dead,
			batch.Dead{Group: groupID, Offset: 1, Removed: batch.DeadRedriven, Reason: batch.DeadRejected, At: start},
			batch.Dead{Group: groupID, Offset: 2, Removed: batch.DeadDiscarded, Reason: batch.DeadExpired, At: start},
			batch.Dead{Group: groupID, Offset: 3, Removed: batch.DeadLost, At: start}),
		control("control_command", "a command was carried out", batch.Command{ID: [16]byte{0: 0xaa, 15: 0xbb}, At: start, Group: groupID, Count: 3}),
		control("control_checkpoint_group", "a checkpoint with a group", batch.CheckpointPart{Total: 1}, workers(),
			batch.Settled{Group: groupID, Ranges: []batch.OffsetRange{{From: 505, To: 507}}}, attempt, dead),
	}
}

// refusedGroupCases break one rule each. What changes is counted from the entry's first byte behind its type and length, each
// of one byte.
func refusedGroupCases() []vectorCase {
	const at = batch.HeaderSize + 2
	control := func(name, about string, change func(b []byte), e batch.Entry) vectorCase {
		b := assigned(batch.BuildControl(e), batch.Assigned{Sequence: 2, Generation: 1})
		change(b)
		return vectorCase{name: "refused_entry_" + name, about: about, form: "stored", raw: reseal(b, true)}
	}
	small := batch.Group{ID: 1, Name: "w", Settings: batch.GroupSettings{Backoff: []uint64{1}}}
	settled := batch.Settled{Group: 1, Ranges: []batch.OffsetRange{{From: 5, To: 6}, {From: 7, To: 9}}}
	nothing := func([]byte) {}
	set := func(pos int, v byte) func([]byte) { return func(b []byte) { b[at+pos] = v } }
	return []vectorCase{
		control("group_name", "a name of 65 bytes", nothing, rawEntry{batch.TypeGroup, append(append(make([]byte, 8), 65), make([]byte, 65+20)...)}),
		control("group_removed", "neither removed nor not", set(10, 2), small),
		control("group_backoffs", "17 waits of backoff", nothing, rawEntry{batch.TypeGroup, append(append(append(make([]byte, 8), 1, 'w', 0, 0, 0, 0, 0, 0), 17), make([]byte, 17+13)...)}),
		control("group_setting", "a setting without a meaning", set(18, 16), small),
		control("group_short", "a group without its totals", nothing, rawEntry{batch.TypeGroup, append(append(make([]byte, 8), 1, 'w'), make([]byte, 12)...)}),
		control("settled_how", "settled in a way without a meaning", set(8, 5), settled),
		control("settled_empty", "a range without an offset", set(11, 0), settled),
		control("settled_count", "more ranges than there are bytes", set(9, 3), settled),
		control("settled_beyond", "a range that ends beyond the last offset", nothing, rawEntry{batch.TypeSettled, append(append(make([]byte, 8), 1, 1, 1),
			0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)}),
		control("attempt_priority", "priority 10", set(21, 10), batch.Attempt{Group: 1}),
		control("attempt_retry", "neither waiting to be tried again nor not", set(22, 2), batch.Attempt{Group: 1}),
		control("attempt_error", "an error of 257 bytes", nothing, rawEntry{batch.TypeAttempt, append(append(make([]byte, 24), 0x81, 0x02), make([]byte, 257)...)}),
		control("dead_removed", "removed in a way without a meaning", set(9, 4), batch.Dead{Group: 1, Reason: batch.DeadRejected}),
		control("dead_reason", "a reason without a meaning", set(11, 4), batch.Dead{Group: 1, Reason: batch.DeadRejected}),
		control("dead_no_reason", "a dead letter without a reason", nothing, batch.Dead{Group: 1}),
		control("dead_priority", "priority 10", set(22, 10), batch.Dead{Group: 1, Reason: batch.DeadRejected}),
		control("command_short", "a command without a count", nothing, rawEntry{batch.TypeCommand, make([]byte, 16+1+8)}),
	}
}

// rawEntry is an entry that no writer makes.
type rawEntry struct {
	kind batch.EntryType
	raw  []byte
}

func (e rawEntry) Type() batch.EntryType      { return e.kind }
func (e rawEntry) AppendTo(dst []byte) []byte { return append(dst, e.raw...) }
