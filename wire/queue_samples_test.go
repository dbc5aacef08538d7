// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const sampleTime = 1_700_000_000_000_000

// queueSamples are the frames of queues.
func queueSamples(log batch.LogID) []sample {
	settings := batch.DefaultGroupSettings()
	settings.OrderByKey, settings.DeadExpired = true, true
	totals := batch.GroupTotals{
		Acked: 400, Expired: 3, Cancelled: 2, Lost: 1, Discarded: 4, Dead: 5, Redriven: 6, Attempts: 1 << 40, Base: 100,
	}
	id := [16]byte{0: 0xaa, 15: 0xbb}
	return []sample{
		{"consume", 23, &Consume{Log: log, Group: "workers", Consumer: "w-1", MaxInFlight: 64, Concurrency: 8, Shards: []uint32{0, 2}}},
		{"consume_widest", 23, &Consume{
			Log: log, Group: "w", Consumer: strings.Repeat("n", MaxName), MaxInFlight: MaxInFlight, Concurrency: 1<<32 - 1, Shards: []uint32{1<<32 - 1},
		}},
		{"consumed", 23, &Consumed{GroupID: 1 << 63, AckWaitUs: 30_000_000, Shards: []Consuming{{0, 7, 0}, {2, 1 << 40, 3}}}},
		{"messages", 0, &Messages{Shard: 2, Generation: 7, Resets: 3, HandOut: 41, Batch: []byte("\x01\x02\x03")}},
		{"messages_slice", 0, &Messages{
			Shard: 2, Generation: 7, HandOut: 1 << 40, Attempts: []MessageAttempt{{0, 2}, {5, 10}}, Slice: true, Batch: []byte("\x01"),
		}},
		{"settle", 24, &Settle{GroupID: 1 << 63, Shard: 2, Resets: 3, Generation: 7, Runs: []SettleRun{
			{Op: SettleAck, HandOut: 41, Offset: 500, Count: 10},
			{Op: SettleNack, HandOut: 51, Offset: 510, Count: 1, AfterUs: 5_000_000, Reason: "the mail server is busy"},
			{Op: SettleReject, HandOut: 52, Offset: 511, Count: 1, Reason: "no such address"},
			{Op: SettleRelease, HandOut: 1<<64 - 2, Offset: 1<<64 - 2, Count: 2},
		}}},
		{"settled", 24, &Settled{Failed: []SettleFailed{{0, 3, code.NoLongerOwner}, {2, 0, code.NoLongerOwner}}}},
		{"settled_all", 24, &Settled{}},
		{"extend", 25, &Extend{
			GroupID: 1 << 63, Shard: 2, Resets: 3, Generation: 7, ForUs: maxExtendUs, Tokens: []batch.SettledToken{{HandOut: 41, Offset: 500}, {HandOut: 43, Offset: 1 << 40}},
		}},
		{"extended", 25, &Extended{Failed: []ExtendFailed{{1, code.NoLongerOwner}}}},
		{"flow", 0, &Flow{MaxInFlight: 32, Begun: []Begun{{0, 17}, {2, 1 << 40}}}},
		{"flow_stop", 0, &Flow{}},
		{"leave", 26, &Leave{}},
		{"consume_end", 26, &ConsumeEnd{Shard: AllShards}},
		{"consume_end_shard", 0, &ConsumeEnd{Shard: 2, Code: code.NotLeader, Message: "shard 2 is led elsewhere"}},
		{"group_command_create", 27, &GroupCommand{
			ID: id, Log: log, Shard: 1, Op: GroupCreate, Group: "workers", GroupID: 1 << 63, Position: Position{Kind: PositionTime, Time: sampleTime},
			HasSettings: true, Settings: settings,
		}},
		{"group_command_seek", 27, &GroupCommand{ID: id, Log: log, Op: GroupSeek, Group: "workers", Position: Position{Kind: PositionOffset, Offset: 500}}},
		{"group_command_redrive", 27, &GroupCommand{
			ID: id, Log: log, Op: GroupRedrive, Group: "workers", GroupID: 1 << 63, Offsets: []uint64{500, 1 << 40}, Rate: 100,
		}},
		{"group_command_reschedule", 27, &GroupCommand{ID: id, Log: log, Op: GroupReschedule, Offsets: []uint64{500}, AtUs: sampleTime}},
		{"group_done", 27, &GroupDone{GroupID: 1 << 63, Count: 2, Again: true}},
		{"group_done_created", 27, &GroupDone{GroupID: 1 << 63, Created: true}},
		{"group_query", 28, &GroupQuery{Log: log, Shard: 1, Group: "workers", Limit: 1, Look: true}},
		{"group_query_all", 28, &GroupQuery{Log: log, Shard: 1, After: "workers", Limit: MaxGroupInfos}},
		{"group_infos", 28, &GroupInfos{Shard: 1, Generation: 7, More: true, Infos: []GroupInfo{
			{
				ID: 1 << 63, Name: "workers", Resets: 3, Settings: settings, Totals: totals, Created: sampleTime, Start: 100, Next: 500, End: 900,
				Ready: 300, InFlight: 64, Delayed: 36, Dead: 5, Ranges: 12, OldestAppend: sampleTime - 1, Held: HeldDead, Exact: true,
				Consumers: []ConsumerInfo{{"w-1", 60, 4}, {"", 4, 0}},
			},
			{ID: 1, Name: "z", Created: -1, Held: HeldOpening},
		}}},
		{"group_infos_none", 28, &GroupInfos{Shard: 1, Generation: 7}},
		{"browse", 29, &Browse{
			Log: log, Shard: 1, Group: "workers", States: MessageReady | MessageDead, HasAfter: true, After: 500, Limit: MaxBrowse,
			Filter: Filter{FilterPrefix, "mail/"}, HasHeader: true, Header: "kind", HeaderValue: []byte("invoice"),
		}},
		{"browse_records", 29, &Browse{Log: log, Shard: 1, States: MessageRecord, Limit: 1}},
		{"browsed", 29, &Browsed{Shard: 1, Generation: 7, More: true, Next: 511, Messages: []BrowsedMessage{
			{
				Offset: 510, State: MessageDead, Attempts: 10, Expires: sampleTime + 9, Reason: batch.DeadAttempts, Error: "the mail server is busy",
				At: sampleTime + 5, AppendTime: sampleTime, Generation: 6, Priority: 9, Key: []byte("mail/7"), Value: []byte{}, Headers: []byte("\x01\x04kind\x07invoice"),
			},
			{Offset: 511, State: MessageInFlight, Attempts: 1, Due: -1, Consumer: "w-1", At: sampleTime, AppendTime: sampleTime, Generation: 7, Key: []byte{}},
		}}},
		{"browsed_none", 29, &Browsed{Shard: 1, Generation: 7}},
	}
}
