// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

var update = flag.Bool("update", false, "write golden vectors that do not exist yet (existing ones are frozen)")

const vectorDir = "testdata/vectors/frames"

// TestVectors holds the encoding of every sample to its golden bytes, and their meaning to the JSON
// beside them. A vector that exists is never rewritten: other clients are built against it.
func TestVectors(t *testing.T) {
	seen := map[Type]bool{}
	for _, s := range samples() {
		seen[s.frame.Type()] = true
		t.Run(s.name, func(t *testing.T) {
			got := AppendFrame(nil, s.corr, s.frame)
			golden(t, s.name+".hex", hexLines(got))
			golden(t, s.name+".json", meaning(t, s))
		})
	}
	for typ := range typeNames {
		if Type(typ).Known() && !seen[Type(typ)] {
			t.Errorf("no vector for %s", Type(typ))
		}
	}
}

func golden(t *testing.T, name string, want []byte) {
	t.Helper()
	path := filepath.Join(vectorDir, name)
	got, err := os.ReadFile(path)
	if os.IsNotExist(err) && *update {
		if err := os.MkdirAll(vectorDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n--- frozen\n%s--- now\n%s", path, got, want)
	}
}

// TestRefused reads bodies that must be refused: "<type>[+<flags>] <hex of the body> # why" on each line.
func TestRefused(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(vectorDir, "refused.txt"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Type{}
	for typ, name := range typeNames {
		names[name] = Type(typ)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		input, why, ok := strings.Cut(line, "#")
		name, digits, _ := strings.Cut(strings.TrimSpace(input), " ")
		name, flagDigits, flagged := strings.Cut(name, "+")
		flags, err := strconv.ParseUint(flagDigits, 16, 8)
		if flagged && err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		body, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		typ, known := names[name]
		if !ok || err != nil || !known {
			t.Fatalf("line %q: %v", line, err)
		}
		err = ParseFrame(Header{Type: typ, Flags: uint8(flags)}, newFrame(typ), body)
		if err == nil {
			t.Errorf("accepted, must be refused: %s", line)
		} else if c := code.From(err).Code; c != code.BadRequest && c != code.Unsupported {
			t.Errorf("%s: %v is neither bad nor unsupported (%s)", name, err, why)
		}
	}
}

type sample struct {
	name  string
	corr  uint64
	frame Frame
}

func samples() []sample {
	log := batch.LogID{0: 0x01, 1: 0x23, 14: 0xfe, 15: 0xff}
	limits := Limits{
		MaxFrame: MaxFrame, MaxBatch: 8 << 20, MaxRecord: 8 << 20, MaxKey: 4096, MaxHeaders: 64,
		MaxHeaderBytes: 16 << 10, MaxInFlight: 32 << 20,
	}
	failed := code.New(code.OutOfRange, "subscribe shard 3: offset 5 has expired").
		With(code.DetailEarliest, 10).With(code.DetailLatest, 1<<40).With(code.DetailShard, 3)
	conflict := code.New(code.Conflict, "publish shard 3: the key has another version").
		With(code.DetailLatest, 1<<40).With(code.DetailShard, 3).With(code.DetailIndex, 2)
	value := Entry{
		Kind: EntryValue, Key: []byte("meter/7"), Offset: 499, Generation: 6, AppendTime: 1_700_000_000_000_001,
		Expires: 1_700_000_060_000_001, Value: []byte("42"), Headers: []byte("\x01\x04unit\x03kWh"),
	}
	gone := Entry{Kind: EntryExpired, Key: []byte("meter/8"), Offset: 1 << 40, Generation: 7, AppendTime: -1}
	moved := code.New(code.NotLeader, "shard 0 is led elsewhere").At("b2.example:7420", 9)
	moved.RetryAfter = 250_000_000
	return append([]sample{
		{"hello", 1, &Hello{VersionMin: 1, VersionMax: 2, Features: FeatureStreams, Client: "margay-go/1.0"}},
		{"hello_ok", 1, &HelloOk{
			Version: 1, Features: FeatureStreams, Limits: limits, KeepAliveMs: 5000, IdleMs: 30000, Node: "b1", Cluster: "main",
		}},
		{"auth", 2, &Auth{Token: strings.Repeat("t", 130)}},
		{"auth_ok", 2, &AuthOk{Expires: 1_700_000_000_000_000, Subject: "svc/orders"}},
		{"error", 1 << 63, NewError(failed)},
		{"error_moved", 77, NewError(moved)},
		{"error_conflict", 77, NewError(conflict)},
		{"ping", 3, &Ping{}},
		{"pong", 3, &Pong{}},
		{"goodbye", 0, &Goodbye{Code: code.ShuttingDown, Message: "rolling upgrade"}},
		{"lookup", 4, &Lookup{Name: "acme/prod/orders"}},
		{"log_info", 4, &LogInfo{
			Log: log, Name: "acme/prod/orders", Ack: AckQuorum, MinAck: AckLeader, Fsync: FsyncAlways, Storage: StorageDisk,
			MapVersion: 12, Shards: []Route{{"b1:7420", 7}, {"", 0}},
		}},
		{"log_info_keys", 4, &LogInfo{Log: log, Name: "acme/prod/meters", Keep: KeepNewest, DefaultTTL: 60_000_000}},
		{"log_info_unsettled", 4, &LogInfo{Log: log, Name: "acme/prod/emails", Keep: KeepUnsettled}},
		{"offsets", 5, &Offsets{Log: log, Shard: 1}},
		{"offsets_ok", 5, &OffsetsOk{Shard: 1, Generation: 7, Earliest: 100, Latest: 2000, AppendTime: 1_700_000_000_000_001}},
		{"publish", 6, &Publish{Log: log, Shard: 2, Previous: 41, Ack: AckQuorum, TimeoutMs: 5000, Batch: batch.Batch("\x01\x02\x03")}},
		{"publish_conditions", 6, &Publish{
			Log: log, Shard: 2, Ack: AckQuorum, Conditions: []Condition{{0, 0}, {3, 1 << 40}}, Batch: batch.Batch("\x01\x02\x03"),
		}},
		{"publish_derive", 6, &Publish{
			Log: log, Shard: 2, Derives: []Derive{{0, OpAdd}, {3, OpTouch}}, Batch: batch.Batch("\x01\x02\x03"),
		}},
		{"publish_conditions_derive", 6, &Publish{
			Log: log, Shard: 2, Conditions: []Condition{{1, 500}}, Derives: []Derive{{1, OpAdd}}, Batch: batch.Batch("\x01"),
		}},
		{"published", 6, &Published{
			BaseOffset: 500, Generation: 7, AppendTime: 1_700_000_000_000_002, Count: 10, Replicas: 3,
			Reached: ReachedFlushed | ReachedCommitted,
		}},
		{"published_sums", 6, &Published{
			BaseOffset: 500, Generation: 7, AppendTime: 1_700_000_000_000_002, Count: 4, Replicas: 3, Sums: []int64{42, -1 << 63},
		}},
		{"subscribe", 7, &Subscribe{
			Log: log, Shards: []Start{
				{Shard: 0, Kind: StartLatest},
				{Shard: 1, Kind: StartOffset, At: 150, Generation: 6},
				{Shard: 2, Kind: StartTime, At: 1_700_000_000_000_000},
			}, Policy: PolicyCatchUp, QueueRecords: 1000, QueueBytes: 1 << 20, UntilMark: true,
		}},
		{"subscribe_filters", 8, &Subscribe{Log: log, Shards: []Start{{Shard: 1}}, Filters: []Filter{
			{FilterExact, ""}, {FilterPrefix, "meter/"}, {FilterPattern, "device/+/telemetry/#"},
		}}},
		{"subscribe_durable", 9, &Subscribe{Log: log, Shards: []Start{{Shard: 1, Kind: StartEarliest}}, Durable: "meter-7"}},
		{"subscribe_filters_durable", 10, &Subscribe{
			Log: log, Shards: []Start{{Shard: 1}}, Filters: []Filter{{FilterPattern, "#"}}, Durable: strings.Repeat("n", MaxName),
		}},
		{"subscribed", 7, &Subscribed{Shards: []Started{
			{Shard: 0, Generation: 7, Offset: 2000, Latest: 2000}, {Shard: 1, Generation: 7, Offset: 150, Latest: 900},
		}}},
		{"subscribed_durable", 9, &Subscribed{Durable: true, Shards: []Started{
			{Shard: 0, Generation: 7, Offset: 2000, Latest: 2000, Epoch: 1},
			{Shard: 1, Generation: 7, Offset: 150, Latest: 900, Resumed: true, Epoch: 1 << 40},
		}}},
		{"deliver", 0, &Deliver{Shard: 1, Mark: 900, Batch: batch.Batch("\x0a\x0b")}},
		{"gap", 0, &Gap{Shard: 1, From: 150, To: 160, Reason: GapRetention}},
		{"progress", 0, &Progress{Shard: 1, Next: 160, Mark: 900, Generation: 7}},
		{"end", 7, &End{Shard: AllShards, Code: code.SlowConsumer, Message: "queue is full", Resume: []Resume{{0, 2000, 7}, {1, 160, 7}}}},
		{"end_reached", 7, &End{Shard: 1}},
		{"unsubscribe", 7, &Unsubscribe{}},
		{"deliver_slice", 0, &DeliverSlice{Shard: 1, Mark: 900, Slices: []byte{0x0a, 0x0b}}},
		{"commit", 11, &Commit{Shards: []Committing{{0, 2001}, {1, 160}}}},
		{"committed", 11, &Committed{}},
		{"cursor_list", 12, &CursorList{Log: log}},
		{"cursors", 12, &Cursors{Cursors: []CursorInfo{
			{"meter-7", 0, 2001, 7, 1_700_000_000_000_000, true}, {"n", 1, 0, 0, -1, false},
		}}},
		{"cursors_none", 12, &Cursors{}},
		{"cursor_delete", 13, &CursorDelete{Log: log, Name: "meter-7"}},
		{"done", 13, &Done{}},
		{"producer_state", 14, &ProducerState{Log: log, Shard: 1, Producer: 1 << 63}},
		{"producer_last", 14, &ProducerLast{LastSequence: 41, BaseOffset: 500, Known: true}},
		{"producer_last_unknown", 14, &ProducerLast{}},
		{"set_last", 15, &SetLast{Log: log, Shard: 1, ID: 1 << 63, GraceMs: 30_000, Batch: batch.Batch("\x01\x02\x03")}},
		{"clear_last", 16, &ClearLast{Log: log, Shard: 1, ID: 1 << 63}},
		{"trim", 17, &Trim{Log: log, Shard: 1, Kind: StartOffset, At: 150}},
		{"trim_time", 17, &Trim{Log: log, Shard: 1, Kind: StartTime, At: 1_700_000_000_000_000}},
		{"trimmed", 17, &Trimmed{Earliest: 140}},
		{"get", 18, &Get{
			Log: log, Shard: 1, Stale: true, AtLeast: 500, TimeoutMs: 5000, Keys: [][]byte{[]byte("meter/7"), {}, []byte("nobody")},
		}},
		{"got", 18, &Got{Shard: 1, Generation: 7, AsOf: 500, Entries: []Entry{
			value, {Kind: EntryValue, Offset: 1 << 63, Generation: 1, AppendTime: 1}, {},
		}}},
		{"list", 19, &List{Log: log, Shard: 1, Filter: Filter{FilterPrefix, "meter/"}, HasAfter: true, After: "meter/6", Limit: MaxEntries}},
		{"list_all", 19, &List{Log: log, Shard: 1, Stale: true, KeysOnly: true, Limit: 1}},
		{"listed", 19, &Listed{Shard: 1, Generation: 7, AsOf: 500, Entries: []Entry{value}}},
		{"listed_keys", 19, &Listed{Shard: 1, Generation: 7, AsOf: 500, More: true, Next: "meter/7", Entries: []Entry{
			{Kind: EntryKey, Key: value.Key, Offset: value.Offset, Generation: 6, AppendTime: value.AppendTime},
		}}},
		{"listed_none", 19, &Listed{Shard: 1, Generation: 7}},
		{"count", 20, &Count{Log: log, Shard: 1, Filter: Filter{FilterPattern, "meter/+"}}},
		{"counted", 20, &Counted{Shard: 1, Generation: 7, AsOf: 500, Count: 1 << 40}},
		{"watch", 21, &Watch{Log: log, Shard: 1, ID: 1, Start: WatchSnapshot, Filter: Filter{FilterExact, "meter/7"}}},
		{"watch_offset", 21, &Watch{Log: log, Shard: 1, ID: 1 << 63, Start: WatchOffset, Offset: 150, Generation: 6}},
		{"watched", 21, &Watched{Shard: 1, ID: 1, Generation: 7, From: 500, How: HowReset}},
		{"watch_entries", 0, &WatchEntries{Shard: 1, ID: 1, Entries: []Entry{
			value, {Kind: EntryDeleted, Key: value.Key, Offset: 501, Generation: 7, AppendTime: 1, Headers: value.Headers}, gone,
		}}},
		{"watch_done", 0, &WatchDone{Shard: 1, ID: 1, From: 500}},
		{"unwatch", 22, &Unwatch{ID: 1}},
		{"watch_end", 22, &WatchEnd{Shard: 1, ID: 1, Resume: 510, Generation: 7}},
		{"watch_end_all", 0, &WatchEnd{Shard: 1, Code: code.NotLeader, Message: "shard 1 is led elsewhere", Resume: 510, Generation: 7}},
	}, queueSamples(log)...)
}

func newFrame(t Type) Frame {
	for _, s := range samples() {
		if s.frame.Type() == t {
			return reflect.New(reflect.TypeOf(s.frame).Elem()).Interface().(Frame)
		}
	}
	return nil
}

// hexLines writes the header on one line and the body in lines of 32 bytes.
func hexLines(frame []byte) []byte {
	out := []byte(hex.EncodeToString(frame[:HeaderSize]) + "\n")
	for body := frame[HeaderSize:]; len(body) > 0; {
		n := min(32, len(body))
		out = append(hex.AppendEncode(out, body[:n]), '\n')
		body = body[n:]
	}
	return out
}

// meaning is the JSON of a frame: fields by their snake_case names, bytes as hex, numbers in full.
func meaning(t *testing.T, s sample) []byte {
	t.Helper()
	body := plain(reflect.ValueOf(s.frame).Elem())
	flags := uint8(0)
	if f, ok := s.frame.(Flagged); ok {
		flags = f.Flags()
		dropUnflagged(body.(map[string]any), s.frame.Type(), flags)
	}
	out, err := json.MarshalIndent(map[string]any{
		"type": uint8(s.frame.Type()), "name": s.frame.Type().String(), "flags": flags, "corr": s.corr, "body": body,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// dropUnflagged takes out the fields of which the flags say that they are not in the body.
func dropUnflagged(body map[string]any, t Type, flags uint8) {
	for _, x := range []struct {
		typ   Type
		flag  uint8
		field string
	}{
		{TypeSubscribe, FlagFilters, "filters"},
		{TypeSubscribe, FlagDurable, "durable"},
		{TypeSubscribed, FlagDurable, "durable"},
		{TypePublish, FlagConditions, "conditions"},
		{TypePublish, FlagDerive, "derives"},
		{TypePublished, FlagSums, "sums"},
		{TypeLogInfo, FlagKeys, "keep"},
		{TypeLogInfo, FlagKeys, "default_ttl"},
		{TypeGroupCommand, FlagSettings, "settings"},
		{TypeBrowse, FlagHeader, "header"},
		{TypeBrowse, FlagHeader, "header_value"},
	} {
		if x.typ == t && flags&x.flag == 0 {
			delete(body, x.field)
		}
	}
	for _, said := range []string{"slice", "has_settings", "has_header"} { // by the flags themselves
		delete(body, said)
	}
	if t == TypeSubscribed && flags&FlagDurable == 0 {
		for _, s := range body["shards"].([]any) {
			delete(s.(map[string]any), "resumed")
			delete(s.(map[string]any), "epoch")
		}
	}
}

func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case batch.LogID:
		return x.String()
	case batch.Batch:
		return hex.EncodeToString(x)
	case []byte:
		return hex.EncodeToString(x)
	case [16]byte:
		return hex.EncodeToString(x[:])
	case code.Details:
		m := map[string]uint64{}
		for k := code.DetailEarliest; k <= code.LastDetail; k++ {
			if val, ok := x.Get(k); ok {
				m[k.String()] = val
			}
		}
		return m
	}
	switch v.Kind() {
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			m[snake(v.Type().Field(i).Name)] = plain(v.Field(i))
			if f := v.Field(i); v.Type() == reflect.TypeFor[BrowsedMessage]() && f.Kind() == reflect.Slice && f.IsNil() && v.Type().Field(i).Name != "Headers" {
				m[snake(v.Type().Field(i).Name)] = nil // none is not the same as empty
			}
		}
		return m
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int64:
		return v.Int()
	default:
		return v.Uint()
	}
}

func snake(name string) string {
	var b strings.Builder
	word := false // the rune before could end a word: ID and TTL are one word each
	for _, r := range name {
		if unicode.IsUpper(r) && word {
			b.WriteByte('_')
		}
		word = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
