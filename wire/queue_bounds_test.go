// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// A list that is as long as it may be is read, and one of an entry more is not.
func TestBoundsOfQueues(t *testing.T) {
	runs := make([]SettleRun, MaxSettleRuns+1)
	for i := range runs {
		runs[i] = SettleRun{Op: SettleReject, HandOut: uint64(i), Count: 1}
	}
	runs[0].Reason = string(make([]byte, MaxReason))
	tokens := make([]batch.SettledToken, MaxSettleTokens+1)
	failed := make([]SettleFailed, MaxSettleTokens+1)
	late := make([]ExtendFailed, MaxSettleTokens+1)
	for i := range failed {
		failed[i].Code, late[i].Code = code.NoLongerOwner, code.NoLongerOwner
	}
	infos := make([]GroupInfo, MaxGroupInfos+1)
	messages := make([]BrowsedMessage, MaxBrowse+1)
	for i := range infos {
		infos[i].ID, infos[i].Name, messages[i].State = 1, "w", MessageReady
	}
	long := make([]byte, batch.MaxHeaderBytes+1)
	browse := func(header, value int) *Browse {
		return &Browse{States: MessageRecord, Limit: 1, HasHeader: true, Header: string(long[:header]), HeaderValue: long[:value]}
	}
	seek := func(n int) *GroupCommand {
		return &GroupCommand{Op: GroupDiscard, Group: "w", Offsets: make([]uint64, n)}
	}
	for _, c := range []struct {
		name       string
		most, over Frame
	}{
		{"runs", &Settle{GroupID: 1, Runs: runs[:MaxSettleRuns]}, &Settle{GroupID: 1, Runs: runs}},
		{
			"reason", &Settle{GroupID: 1, Runs: runs[:1]},
			&Settle{GroupID: 1, Runs: []SettleRun{{Op: SettleReject, Count: 1, Reason: string(make([]byte, MaxReason+1))}}},
		},
		{"unsettled", &Settled{Failed: failed[:MaxSettleTokens]}, &Settled{Failed: failed}},
		{"tokens", &Extend{GroupID: 1, Tokens: tokens[:MaxSettleTokens]}, &Extend{GroupID: 1, Tokens: tokens}},
		{"unextended", &Extended{Failed: late[:MaxSettleTokens]}, &Extended{Failed: late}},
		{"offsets", seek(MaxCommandOffsets), seek(MaxCommandOffsets + 1)},
		{"groups", &GroupInfos{Infos: infos[:MaxGroupInfos]}, &GroupInfos{Infos: infos}},
		{"messages", &Browsed{Messages: messages[:MaxBrowse]}, &Browsed{Messages: messages}},
		{"header", browse(batch.MaxHeaderBytes, 0), browse(batch.MaxHeaderBytes+1, 0)},
		{"header value", browse(0, batch.MaxHeaderBytes), browse(0, batch.MaxHeaderBytes+1)},
	} {
		for _, f := range []Frame{c.most, c.over} {
			raw := AppendFrame(nil, 0, f)
			h, err := ParseHeader([HeaderSize]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			err = ParseFrame(h, newFrame(f.Type()), raw[HeaderSize:])
			if f == c.most && err != nil || f == c.over && !errors.Is(err, ErrValue) {
				t.Errorf("%s, %d bytes: %v", c.name, h.Size, err)
			}
		}
	}
}

// What an operation has no room for is not written, and so is nothing that Size counts.
func TestSettleRunsHaveWhatTheirOperationHas(t *testing.T) {
	for op, want := range map[SettleOp]SettleRun{
		SettleAck: {}, SettleNack: {AfterUs: 9, Reason: "why"}, SettleReject: {Reason: "why"}, SettleRelease: {},
	} {
		f := Settle{GroupID: 1, Runs: []SettleRun{{Op: op, HandOut: 3, Offset: 4, Count: 1, AfterUs: 9, Reason: "why"}}}
		body := f.Append(nil)
		if len(body) != f.Size() {
			t.Errorf("operation %d: Size says %d, Append wrote %d", op, f.Size(), len(body))
		}
		want.Op, want.HandOut, want.Offset, want.Count = op, 3, 4, 1
		if err := f.Parse(body); err != nil || f.Runs[0] != want {
			t.Errorf("operation %d came back as %+v, %v", op, f.Runs[0], err)
		}
	}
}

// A client that browses tells no key from an empty one, and a tombstone from an empty value.
func TestBrowsedTellsNoneFromEmpty(t *testing.T) {
	f := Browsed{Messages: []BrowsedMessage{
		{State: MessageReady}, {State: MessageReady, Key: []byte{}, Value: []byte{}}, {State: MessageReady, Value: []byte("v")},
	}}
	body := f.Append(nil)
	var back Browsed
	if err := back.Parse(body); err != nil {
		t.Fatal(err)
	}
	for i, m := range back.Messages {
		if w := f.Messages[i]; (m.Key == nil) != (w.Key == nil) || (m.Value == nil) != (w.Value == nil) {
			t.Errorf("message %d came back as %+v", i, m)
		}
	}
}
