// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

func drawGroupEntry(t *rapid.T, kind int) batch.Entry {
	u, i, text := rapid.Uint64(), rapid.Int64(), rapid.StringN(0, 60, batch.MaxGroupName)
	u32, priority := rapid.Uint32(), rapid.Uint8Max(batch.MaxPriority)
	switch kind {
	case 7:
		return batch.Group{
			ID: u.Draw(t, "id"), Name: text.Draw(t, "name"), Removed: rapid.Bool().Draw(t, "removed"), Resets: u32.Draw(t, "resets"),
			Created: i.Draw(t, "created"), Updated: i.Draw(t, "updated"), Settings: drawSettings(t), Cursor: u.Draw(t, "cursor"),
			Totals: batch.GroupTotals{Acked: u.Draw(t, "acked"), Lost: u.Draw(t, "lost"), Attempts: u.Draw(t, "attempts"), Base: u.Draw(t, "base")},
		}
	case 8:
		return batch.Settled{Group: u.Draw(t, "id"), How: batch.How(rapid.Uint8Max(4).Draw(t, "how")), Ranges: drawRanges(t)}
	case 9:
		return batch.Attempt{
			Group: u.Draw(t, "id"), Offset: u.Draw(t, "offset"), Attempts: u32.Draw(t, "attempts"), Due: i.Draw(t, "due"),
			Expires: i.Draw(t, "expires"), AppendTime: i.Draw(t, "append time"), Key: u.Draw(t, "key"), Priority: priority.Draw(t, "priority"),
			Retry: rapid.Bool().Draw(t, "retry"), Count: rapid.Uint8().Draw(t, "count"), Error: text.Draw(t, "error"),
		}
	case 10:
		return batch.Dead{
			Group: u.Draw(t, "id"), Offset: u.Draw(t, "offset"), Removed: batch.DeadRemoved(rapid.Uint8Max(3).Draw(t, "removed")),
			Attempts: u32.Draw(t, "attempts"), Reason: batch.DeadReason(rapid.Uint8Range(1, 3).Draw(t, "reason")), At: i.Draw(t, "at"),
			AppendTime: i.Draw(t, "append time"), Key: u.Draw(t, "key"), Priority: priority.Draw(t, "priority"), Error: text.Draw(t, "error"),
		}
	}
	return batch.Command{ID: [16]byte{3: rapid.Byte().Draw(t, "id")}, At: i.Draw(t, "at"), Group: u.Draw(t, "group"), Count: u.Draw(t, "count")}
}

func drawSettings(t *rapid.T) batch.GroupSettings {
	u, b := rapid.Uint64(), rapid.Bool()
	s := batch.GroupSettings{
		AckWait: u.Draw(t, "ack wait"), MaxAttempts: rapid.Uint32().Draw(t, "max attempts"), OrderByKey: b.Draw(t, "by key"),
		FairKeys: b.Draw(t, "fair"), Paused: b.Draw(t, "paused"), DeadExpired: b.Draw(t, "expired"), PriorityAge: u.Draw(t, "age"),
		MaxDead: rapid.Uint32().Draw(t, "max dead"),
	}
	for range rapid.IntRange(0, batch.MaxBackoffs).Draw(t, "backoffs") {
		s.Backoff = append(s.Backoff, u.Draw(t, "backoff"))
	}
	return s
}

func drawRanges(t *rapid.T) (out []batch.OffsetRange) {
	var last uint64
	for range rapid.IntRange(0, 5).Draw(t, "ranges") {
		from := last + rapid.Uint64Max(1<<40).Draw(t, "gap")
		last = from + rapid.Uint64Range(1, 1<<40).Draw(t, "length")
		out = append(out, batch.OffsetRange{From: from, To: last})
	}
	return out
}

func TestGroupSettingsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		raw := s.AppendTo(nil)
		back, n, err := batch.ReadGroupSettings(append(raw, 1, 2))
		if err != nil || n != len(raw) || n != s.Size() || !reflect.DeepEqual(back, s) {
			t.Fatalf("%+v came back as %+v of %d bytes, %v", s, back, n, err)
		}
	})
}

func TestGroupSettingsAreNamedWhenTheyAreWrong(t *testing.T) {
	if err := batch.DefaultGroupSettings().Validate(); err != nil {
		t.Fatal(err)
	}
	s := batch.GroupSettings{AckWait: 1, Backoff: make([]uint64, batch.MaxBackoffs+1), PriorityAge: 1 << 60, MaxDead: batch.MaxDead + 1}
	err := s.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, word := range []string{"ack wait", "17 waits", "backoff 1 ", "backoff 16", "priority age", "dead letters"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %q", err, word)
		}
	}
}

func TestWhatIsWrittenOfAGroupStaysReadable(t *testing.T) {
	long := strings.Repeat("ключ", 200)
	b := batch.BuildControl(
		batch.Group{Name: long, Settings: batch.GroupSettings{Backoff: make([]uint64, 100)}},
		batch.Attempt{Error: long, Priority: 200},
		batch.Dead{Reason: batch.DeadRejected, Error: "x" + long, Priority: 200},
	)
	entries, err := b.Entries()
	if err != nil {
		t.Fatal(err)
	}
	g, a, d := entries[0].(batch.Group), entries[1].(batch.Attempt), entries[2].(batch.Dead)
	if len(g.Name) != batch.MaxGroupName || len(g.Settings.Backoff) != batch.MaxBackoffs || a.Priority != batch.MaxPriority ||
		len(a.Error) != batch.MaxGroupReason || len(d.Error) != batch.MaxGroupReason-1 || !utf8.ValidString(d.Error) {
		t.Fatalf("%+v, %+v, %+v", g, a, d)
	}
}

func TestManyRangesAreSpread(t *testing.T) {
	var ranges []batch.OffsetRange
	for i := range uint64(100_000) {
		ranges = append(ranges, batch.OffsetRange{From: 3 * i, To: 3*i + 1})
	}
	var back []batch.OffsetRange
	for _, b := range batch.BuildCheckpoint(batch.Settles(7, batch.SettledState, ranges)...) {
		entries, err := b.Entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries[1:] {
			back = append(back, e.(batch.Settled).Ranges...)
		}
	}
	if !reflect.DeepEqual(back, ranges) {
		t.Fatal("the ranges are not those that were written")
	}
}

func TestSettlementComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		want := batch.Settlement{
			Group: rapid.Uint64Min(1).Draw(t, "group"), Resets: rapid.Uint32().Draw(t, "resets"), Generation: rapid.Uint64().Draw(t, "generation"),
		}
		for range rapid.IntRange(1, 20).Draw(t, "tokens") {
			want.Tokens = append(want.Tokens, batch.SettledToken{HandOut: rapid.Uint64().Draw(t, "hand-out"), Offset: rapid.Uint64().Draw(t, "offset")})
		}
		builder := batch.NewBuilder(batch.Limits{})
		first := rapid.Bool().Draw(t, "settlement first")
		if first {
			if err := builder.SetSettlement(want); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range records {
			if err := builder.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		plain := 0
		if !first {
			plain = builder.Size()
			if err := builder.SetSettlement(want); err != nil {
				t.Fatal(err)
			}
		}
		b, err := builder.Build(9, 1, rapid.SampledFrom([]batch.Compression{batch.None, batch.Zstd}).Draw(t, "compression"))
		if err != nil || builder.Size() <= plain {
			t.Fatal(err)
		}
		if b, err = batch.CheckProduced(b, batch.Limits{}); err != nil {
			t.Fatal(err)
		}
		b.Assign(batch.Assigned{Sequence: 3, BaseOffset: 70, Generation: 2})
		if b, err = batch.CheckStored(b); err != nil {
			t.Fatal(err)
		}
		got, ok, err := b.Settlement()
		if err != nil || !ok || !b.HasSettlement() || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v came back as %+v, %v", want, got, err)
		}
		back, err := readAll(b)
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, back, records)
		sameMetas(t, b, records)
		keep := make([]int, len(records))
		for i := range keep {
			keep[i] = i
		}
		s, err := batch.BuildSlice(b, keep)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = batch.CheckSlice(s); err != nil {
			t.Fatal(err)
		}
		part, _, err := readSlice(s)
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, part, records)
		builder.Reset()
		if err := builder.Add(records[0]); err != nil {
			t.Fatal(err)
		}
		if b, err = builder.Build(9, 2, batch.None); err != nil || b.HasSettlement() {
			t.Fatalf("a settlement outlives Reset, %v", err)
		}
	})
}

func TestSettlementIsRefused(t *testing.T) {
	builder := batch.NewBuilder(batch.Limits{Batch: 300})
	one := []batch.SettledToken{{HandOut: 1, Offset: 1}}
	for name, s := range map[string]batch.Settlement{
		"no group": {Tokens: one}, "nothing": {Group: 1}, "too many": {Group: 1, Tokens: make([]batch.SettledToken, batch.MaxSettled+1)},
	} {
		if err := builder.SetSettlement(s); !errors.Is(err, batch.ErrSettlement) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: make([]batch.SettledToken, 200)}); !errors.Is(err, batch.ErrTooLarge) {
		t.Errorf("a settlement that fits no batch: %v", err)
	}
	if err := builder.Add(batch.Record{Value: make([]byte, 190)}); err != nil {
		t.Fatal(err)
	}
	if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: one}); !errors.Is(err, batch.ErrFull) {
		t.Errorf("a settlement that does not fit beside what is there: %v", err)
	}
	dedup := batch.Record{Value: []byte("v"), Headers: []batch.Header{{Key: batch.DedupHeader, Value: []byte("i")}}}
	builder.Reset()
	if err := builder.Add(dedup); err != nil {
		t.Fatal(err)
	}
	if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: one}); !errors.Is(err, batch.ErrSettlement) {
		t.Errorf("beside a dedup id: %v", err)
	}
	builder.Reset()
	if err := builder.SetSettlement(batch.Settlement{Group: 1, Tokens: one}); err != nil {
		t.Fatal(err)
	}
	if err := builder.Add(dedup); !errors.Is(err, batch.ErrSettlement) {
		t.Errorf("a dedup id beside a settlement: %v", err)
	}
	if err := builder.Add(batch.Record{Priority: batch.MaxPriority + 1}); !errors.Is(err, batch.ErrPriority) {
		t.Errorf("priority %d: %v", batch.MaxPriority+1, err)
	}
}
