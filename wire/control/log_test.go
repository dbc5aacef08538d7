// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSpecDefaults(t *testing.T) {
	spec := StreamSpec{Name: "orders"}
	l, ps := spec.Log("default", "default")
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	want := Log{
		Tenant: "default", Namespace: "default", Name: "orders", Preset: PresetStream, Shards: 1, Replicas: 1,
		Ack: AckQuorum, MinAck: AckNone, Fsync: FsyncAlways, Storage: StorageDisk, Keep: KeepAll, OnFull: OnFullRefuse, DedupWindow: 2 * time.Minute,
	}
	if l != want {
		t.Fatalf("got %+v", l)
	}
	cache := CacheSpec{Name: "orders"}
	if l, ps = cache.Log("default", "default"); len(ps) != 0 {
		t.Fatal(ps)
	}
	want.Preset, want.Keep, want.MaxKeys = PresetCache, KeepNewest, 10_000_000
	if l != want || l.SegmentSize() != 16<<20 {
		t.Fatalf("got %+v with segments of %d", l, l.SegmentSize())
	}
	queue := QueueSpec{Name: "orders"}
	if l, ps = queue.Log("default", "default"); len(ps) != 0 {
		t.Fatal(ps)
	}
	want.Preset, want.Keep, want.MaxKeys = PresetQueue, KeepUnsettled, 0
	if l != want || l.SegmentSize() != 16<<20 {
		t.Fatalf("got %+v with segments of %d", l, l.SegmentSize())
	}
	// The defaults of what is kept go with the setting, not with the preset.
	cache.Keep = new(KeepAll)
	if l, ps = cache.Log("t", "n"); len(ps) != 0 || l.MaxKeys != 0 || l.SegmentSize() != 256<<20 {
		t.Fatalf("%+v %v", l, ps)
	}
	spec.Keep = new(KeepNewest)
	if l, ps = spec.Log("t", "n"); len(ps) != 0 || l.MaxKeys != 10_000_000 || l.SegmentSize() != 16<<20 {
		t.Fatalf("%+v %v", l, ps)
	}
	spec = StreamSpec{Name: "orders", Fsync: new(FsyncInterval)}
	if l, ps = spec.Log("t", "n"); len(ps) != 0 || l.FsyncInterval != 100*time.Millisecond {
		t.Fatalf("%+v %v", l, ps)
	}
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	spec := StreamSpec{
		Name: "../x", Shards: new(0), Replicas: new(3), Ack: new("none"), MinAck: new("all"), Fsync: new("sometimes"),
		Storage: new("tape"), MaxAge: new(Duration(time.Millisecond)), MaxBytes: new(int64(-1)), SegmentBytes: new(int64(64)),
		SegmentAge: new(Duration(time.Millisecond)), FsyncInterval: new(Duration(time.Second)), OnFull: new("panic"), DedupWindow: new(Duration(0)),
		Keep: new("some"), MaxKeys: new(int64(7)), TTL: new(Duration(time.Hour)),
	}
	_, ps := spec.Log("T", "")
	var got []string
	for _, p := range ps {
		got = append(got, p.Path)
	}
	want := "tenant namespace name shards replicas ack min_ack fsync fsync_interval storage keep on_full dedup_window max_age segment_age segment_bytes max_bytes"
	if strings.Join(got, " ") != want {
		t.Fatalf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

// RT-03: a value that makes no sense is refused with the minimum named.
func TestTinySettingsNameTheMinimum(t *testing.T) {
	for _, tc := range []struct {
		change func(*StreamSpec)
		say    string
	}{
		{func(s *StreamSpec) { s.SegmentBytes = new(int64(1)) }, "4096"},
		{func(s *StreamSpec) { s.SegmentBytes = new(int64(64)) }, "4096"},
		{func(s *StreamSpec) { s.SegmentBytes = new(int64(1000)) }, "4096"},
		{func(s *StreamSpec) { s.SegmentBytes = new(int64(-1)) }, "4096"},
		{func(s *StreamSpec) { s.SegmentBytes = new(int64(4<<30 + 1)) }, "4294967296"},
		{func(s *StreamSpec) { s.SegmentBytes, s.MaxBytes = new(int64(8192)), new(int64(8191)) }, "8192"},
		{func(s *StreamSpec) { s.MaxBytes = new(int64(1000)) }, "1048576"},
		{func(s *StreamSpec) { s.MaxBytes = new(int64(-1)) }, "1048576"},
		{func(s *StreamSpec) { s.MaxAge = new(Duration(time.Millisecond)) }, "1s"},
		{func(s *StreamSpec) { s.SegmentAge = new(Duration(time.Millisecond)) }, "1s"},
		{func(s *StreamSpec) { s.DedupWindow = new(Duration(time.Millisecond)) }, "between 1s and 1d"},
		{func(s *StreamSpec) { s.DedupWindow = new(Duration(25 * time.Hour)) }, "between 1s and 1d"},
		{func(s *StreamSpec) { s.Shards = new(1025) }, "1024"},
		{func(s *StreamSpec) { s.Shards = new(-1) }, "between 1"},
		{func(s *StreamSpec) { s.Replicas = new(0) }, "minimum of 1"},
		{func(s *StreamSpec) { s.Replicas = new(3) }, "use replicas 1"},
		{func(s *StreamSpec) { s.Fsync, s.FsyncInterval = new(FsyncInterval), new(Duration(1)) }, "1ms"},
		{func(s *StreamSpec) { s.FsyncInterval = new(Duration(time.Second)) }, "leave it out"},
		{func(s *StreamSpec) { s.Ack, s.MinAck = new(AckLeader), new(AckQuorum) }, "more than the ack rule"},
		{func(s *StreamSpec) { s.Ack = new("") }, "not one of"},
		{func(s *StreamSpec) { s.OnFull = new("drop") }, "drop-oldest"},
		{func(s *StreamSpec) { s.Storage, s.OnFull = new(StorageMemory), new(OnFullDropOldest) }, "leave it out"},
		{func(s *StreamSpec) { s.Name = strings.Repeat("x", 5000) }, NameRule},
	} {
		s := StreamSpec{Name: "x"}
		tc.change(&s)
		_, ps := s.Log("default", "default")
		if len(ps) != 1 || !strings.Contains(ps[0].Message, tc.say) {
			t.Errorf("%+v: problems %v, want one that says %q", s, ps, tc.say)
		}
	}
	for _, ok := range []StreamSpec{
		{Name: "x", SegmentBytes: new(int64(4096)), MaxBytes: new(int64(4096))},
		{Name: "x", SegmentBytes: new(int64(0)), MaxBytes: new(int64(0)), MaxAge: new(Duration(0))},
		{Name: "x", SegmentBytes: new(int64(4 << 30)), Shards: new(1024), MaxAge: new(Duration(time.Second))},
	} {
		if _, ps := ok.Log("default", "default"); len(ps) != 0 {
			t.Errorf("%+v: %v", ok, ps)
		}
	}
}

// What a log of the newest records would lose keys by is refused, with what to do instead.
func TestKeepNewestEndsKeysByTTLAndDeleteOnly(t *testing.T) {
	for _, tc := range []struct {
		change func(*CacheSpec)
		path   string
		say    string
	}{
		{func(s *CacheSpec) { s.MaxAge = new(Duration(time.Hour)) }, "max_age", "use ttl"},
		{func(s *CacheSpec) { s.MaxAge = new(Duration(time.Millisecond)) }, "max_age", "use ttl"},
		{func(s *CacheSpec) { s.MaxBytes = new(int64(1 << 30)) }, "max_bytes", "bounded by max_keys"},
		{func(s *CacheSpec) { s.MaxBytes = new(int64(-1)) }, "max_bytes", "bounded by max_keys"},
		{func(s *CacheSpec) { s.OnFull = new(OnFullDropOldest) }, "on_full", `use on_full "refuse"`},
		{func(s *CacheSpec) { s.MaxKeys = new(int64(0)) }, "max_keys", "between 1 and 1000000000"},
		{func(s *CacheSpec) { s.MaxKeys = new(int64(-5)) }, "max_keys", "between 1 and 1000000000"},
		{func(s *CacheSpec) { s.MaxKeys = new(int64(1_000_000_001)) }, "max_keys", "between 1 and 1000000000"},
		{func(s *CacheSpec) { s.TTL = new(Duration(-1)) }, "ttl", "between 1ms and 3650d"},
		{func(s *CacheSpec) { s.TTL = new(Duration(time.Microsecond)) }, "ttl", "between 1ms and 3650d"},
		{func(s *CacheSpec) { s.TTL = new(Duration(3651 * day)) }, "ttl", "between 1ms and 3650d"},
		{func(s *CacheSpec) { s.Keep = new("") }, "keep", "not one of"},
		{func(s *CacheSpec) { s.Keep, s.MaxKeys = new(KeepAll), new(int64(5)) }, "max_keys", `use keep "newest"`},
		{func(s *CacheSpec) { s.Keep, s.TTL = new(KeepAll), new(Duration(time.Hour)) }, "ttl", `use keep "newest"`},
	} {
		s := CacheSpec{Name: "x"}
		tc.change(&s)
		_, ps := s.Log("default", "default")
		if len(ps) != 1 || ps[0].Path != tc.path || !strings.Contains(ps[0].Message, tc.say) {
			t.Errorf("%+v: problems %v, want one of %s that says %q", s, ps, tc.path, tc.say)
		}
	}
	for _, ok := range []CacheSpec{
		{Name: "x", MaxKeys: new(int64(1)), TTL: new(Duration(time.Millisecond)), SegmentBytes: new(int64(4096))},
		{Name: "x", MaxKeys: new(int64(1_000_000_000)), TTL: new(Duration(3650 * day)), MaxAge: new(Duration(0)), MaxBytes: new(int64(0))},
		{Name: "x", Keep: new(KeepAll), MaxAge: new(Duration(time.Hour)), MaxBytes: new(int64(1 << 30)), OnFull: new(OnFullDropOldest)},
		{Name: "x", Keep: new(KeepAll), Storage: new(StorageMemory)},
	} {
		if _, ps := ok.Log("default", "default"); len(ps) != 0 {
			t.Errorf("%+v: %v", ok, ps)
		}
	}
}

// What is unsettled goes by age and size, too. It is neither bounded by its keys nor kept where settlements would not be.
func TestKeepUnsettledIsOnDisk(t *testing.T) {
	for _, tc := range []struct {
		change func(*QueueSpec)
		path   string
		say    string
	}{
		{func(s *QueueSpec) { s.Storage = new(StorageMemory) }, "storage", `needs storage "disk"`},
		{func(s *QueueSpec) { s.Storage, s.OnFull = new(StorageMemory), new(OnFullDropOldest) }, "storage", `needs storage "disk"`},
		{func(s *QueueSpec) { s.MaxKeys = new(int64(5)) }, "max_keys", `means nothing with keep "unsettled"`},
		{func(s *QueueSpec) { s.TTL = new(Duration(time.Hour)) }, "ttl", `means nothing with keep "unsettled"`},
		{func(s *QueueSpec) { s.MaxAge = new(Duration(time.Millisecond)) }, "max_age", "1s"},
		{func(s *QueueSpec) { s.MaxBytes = new(int64(1000)) }, "max_bytes", "1048576"},
		{func(s *QueueSpec) { s.Keep, s.MaxAge = new(KeepNewest), new(Duration(time.Hour)) }, "max_age", "use ttl"},
	} {
		s := QueueSpec{Name: "x"}
		tc.change(&s)
		_, ps := s.Log("default", "default")
		if len(ps) != 1 || ps[0].Path != tc.path || !strings.Contains(ps[0].Message, tc.say) {
			t.Errorf("%+v: problems %v, want one of %s that says %q", s, ps, tc.path, tc.say)
		}
	}
	for _, ok := range []QueueSpec{
		{Name: "x", MaxAge: new(Duration(time.Hour)), MaxBytes: new(int64(1 << 30)), OnFull: new(OnFullDropOldest)},
		{Name: "x", Keep: new(KeepAll), Storage: new(StorageMemory)},
		{Name: "x", Keep: new(KeepNewest), TTL: new(Duration(time.Hour))},
	} {
		if _, ps := ok.Log("default", "default"); len(ps) != 0 {
			t.Errorf("%+v: %v", ok, ps)
		}
	}
	if _, ps := (&StreamSpec{Name: "x", Keep: new(KeepUnsettled)}).Log("t", "n"); len(ps) != 0 {
		t.Errorf("a stream of the unsettled: %v", ps)
	}
}

// What is kept can become less. It cannot become more: what is gone does not come back.
func TestKeepChangesOneWay(t *testing.T) {
	all, _ := (&StreamSpec{Name: "x", MaxAge: new(Duration(day)), MaxBytes: new(int64(1 << 30))}).Log("t", "n")
	l := all
	if ps := (&LogPatch{Keep: new(KeepNewest)}).Apply(&l); len(ps) != 2 || ps[0].Path != "max_age" || ps[1].Path != "max_bytes" {
		t.Errorf("beside limits of age and size: %v", ps)
	}
	l = all
	patch := LogPatch{Keep: new(KeepNewest), MaxAge: new(Duration(0)), MaxBytes: new(int64(0)), TTL: new(Duration(time.Hour))}
	if ps := patch.Apply(&l); len(ps) != 0 || l.Keep != KeepNewest || l.MaxKeys != DefaultMaxKeys || l.TTL != time.Hour {
		t.Fatalf("%+v, %v", l, ps)
	}
	newest := l
	if ps := (&LogPatch{Keep: new(KeepNewest), MaxKeys: new(int64(5))}).Apply(&l); len(ps) != 0 || l.MaxKeys != 5 {
		t.Errorf("a bound below what there is concerns new keys: %+v, %v", l, ps)
	}
	for _, to := range []string{KeepAll, KeepUnsettled, "some"} {
		l = newest
		ps := (&LogPatch{Keep: &to}).Apply(&l)
		if len(ps) != 1 || ps[0].Path != "keep" || !strings.Contains(ps[0].Message, "create a new stream") {
			t.Errorf("to %q: %v", to, ps)
		}
	}
	l = all
	if ps := (&LogPatch{Keep: new("some")}).Apply(&l); len(ps) != 1 || !strings.Contains(ps[0].Message, "not one of") {
		t.Errorf("to nothing that there is: %v", ps)
	}
	l = all
	if ps := (&LogPatch{Keep: new(KeepUnsettled)}).Apply(&l); len(ps) != 0 || l.Keep != KeepUnsettled || l.MaxAge != day || l.MaxKeys != 0 {
		t.Errorf("limits of age and size stay: %+v, %v", l, ps)
	}
	for _, to := range []string{KeepAll, KeepNewest} {
		queue, _ := (&QueueSpec{Name: "x"}).Log("t", "n")
		ps := (&LogPatch{Keep: &to}).Apply(&queue)
		if len(ps) != 1 || ps[0].Path != "keep" || !strings.Contains(ps[0].Message, "settled are gone") || !strings.Contains(ps[0].Message, "create a new queue") {
			t.Errorf("from unsettled to %q: %v", to, ps)
		}
	}
	memory, _ := (&StreamSpec{Name: "x", Storage: new(StorageMemory)}).Log("t", "n")
	if ps := (&LogPatch{Keep: new(KeepUnsettled)}).Apply(&memory); len(ps) != 1 || ps[0].Path != "storage" {
		t.Errorf("in memory: %v", ps)
	}
	cache, _ := (&CacheSpec{Name: "x"}).Log("t", "n")
	if ps := (&LogPatch{Shards: new(2)}).Apply(&cache); len(ps) != 1 || !strings.Contains(ps[0].Message, "create a new cache") {
		t.Errorf("shards of a cache: %v", ps)
	}
}

func TestSegmentSizeLeavesRetentionSomethingToRemove(t *testing.T) {
	for _, tc := range []struct {
		segment, max, want int64
		keep               string
	}{
		{0, 0, 256 << 20, KeepAll},
		{0, 10 << 30, 256 << 20, KeepAll},
		{0, 1 << 20, 256 << 10, KeepAll},
		{4096, 4096, 4096, KeepAll},
		{1 << 30, 2 << 30, 1 << 30, KeepAll},
		{0, 0, 16 << 20, KeepNewest},
		{0, 0, 16 << 20, KeepUnsettled},
		{0, 10 << 30, 16 << 20, KeepUnsettled},
		{0, 1 << 20, 256 << 10, KeepUnsettled},
		{1 << 30, 2 << 30, 1 << 30, KeepUnsettled},
	} {
		l := Log{SegmentBytes: tc.segment, MaxBytes: tc.max, Keep: tc.keep}
		if got := l.SegmentSize(); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

func TestPatchChangesOnlyWhatItNames(t *testing.T) {
	spec := StreamSpec{Name: "x", Shards: new(4), MaxBytes: new(int64(1 << 20)), Fsync: new(FsyncInterval)}
	l, ps := spec.Log("t", "n")
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	before := l
	if ps := (&LogPatch{}).Apply(&l); len(ps) != 0 || l != before {
		t.Fatalf("an empty patch changed %+v to %+v: %v", before, l, ps)
	}
	patch := LogPatch{MaxAge: new(Duration(time.Hour)), Shards: new(4)}
	if ps := patch.Apply(&l); len(ps) != 0 {
		t.Fatal(ps)
	}
	before.MaxAge = time.Hour
	if l != before {
		t.Fatalf("got %+v, want %+v", l, before)
	}
	patch = LogPatch{Fsync: new(FsyncAlways)}
	if ps := patch.Apply(&l); len(ps) != 0 || l.FsyncInterval != 0 {
		t.Fatalf("leaving interval keeps %v: %v", l.FsyncInterval, ps)
	}
	patch = LogPatch{Fsync: new(FsyncInterval)}
	if ps := patch.Apply(&l); len(ps) != 0 || l.FsyncInterval != DefaultFsyncInterval {
		t.Fatalf("back to interval with %v: %v", l.FsyncInterval, ps)
	}
}

// PL-14: more shards would move keys; the refusal says so.
func TestPatchRefusesWhatCannotChange(t *testing.T) {
	spec := StreamSpec{Name: "x", Shards: new(4)}
	for _, tc := range []struct {
		patch LogPatch
		say   string
	}{
		{LogPatch{Shards: new(8)}, "keys would move"},
		{LogPatch{Shards: new(2)}, "keys would move"},
		{LogPatch{Storage: new(StorageMemory)}, "create a new stream"},
		{LogPatch{Replicas: new(2)}, "use replicas 1"},
		{LogPatch{SegmentBytes: new(int64(1))}, "4096"},
	} {
		l, _ := spec.Log("t", "n")
		ps := tc.patch.Apply(&l)
		if len(ps) != 1 || !strings.Contains(ps[0].Message, tc.say) {
			t.Errorf("%+v: %v, want %q", tc.patch, ps, tc.say)
		}
	}
}

// AU-11: names that become paths.
func TestNames(t *testing.T) {
	for _, good := range []string{"a", "0", "orders", "a.b", "a-b_c.d", strings.Repeat("x", 64)} {
		if !ValidName(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{
		"", ".", "..", "../../x", "a/b", `a\b`, "-a", "_a", ".a", "A", "CON", "LOCK", "a b", "a\x00", "a\n", "%2e%2e", "é", "\u202ea", "😀",
		strings.Repeat("x", 65), strings.Repeat("x", 5000),
	} {
		if ValidName(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestSplitName(t *testing.T) {
	for _, tc := range []struct{ in, tenant, namespace, want string }{
		{"orders", "", "", "default/default/orders"},
		{"orders", "acme", "", "acme/default/orders"},
		{"shop/orders", "acme", "x", "acme/shop/orders"},
		{"a/b/c", "acme", "x", "a/b/c"},
		{"a/b/c/d", "", "", ""},
		{"", "", "", ""},
		{"a/", "", "", ""},
		{"A", "", "", ""},
		{"a", "B", "", ""},
	} {
		tn, n, name, err := SplitName(tc.in, tc.tenant, tc.namespace)
		if (err == nil) != (tc.want != "") || (err == nil && FullName(tn, n, name) != tc.want) {
			t.Errorf("%+v: %s/%s/%s, %v", tc, tn, n, name, err)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0s": 0, "0": 0, "100ms": 100 * time.Millisecond, "7d": 7 * day, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "1d30s": day + 30*time.Second,
	} {
		got, err := ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
			continue
		}
		again, err := ParseDuration(Duration(got).String())
		if err != nil || again != want {
			t.Errorf("%q is written %q and read %v, %v", in, Duration(got), again, err)
		}
	}
	for _, bad := range []string{"", "7", "-1s", "d", "1.5d", "-7d", "1d-1h", "200000d", "106751d24h", "7days", "1d2d", "99999999999999d"} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
	if s := Duration(36 * time.Hour).String(); s != "1d12h" {
		t.Error(s)
	}
	if s := Duration(90 * time.Minute).String(); s != "1h30m" {
		t.Error(s)
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "64MiB": 64 << 20, "10GiB": 10 << 30, "1TB": 1e12, "5 KiB": 5120, "7B": 7} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "1.5GiB", "9223372036854775807KiB", "1 parsec", "0x10"} {
		if got, err := ParseBytes(bad); err == nil {
			t.Errorf("%q: %d", bad, got)
		}
	}
	for in, want := range map[int64]string{0: "0", 1000: "1000", 1024: "1KiB", 256 << 20: "256MiB", 10 << 30: "10GiB", 1<<20 + 1: "1048577"} {
		if got := FormatBytes(in); got != want {
			t.Errorf("%d: %s", in, got)
		}
	}
}

func TestStreamDocument(t *testing.T) {
	spec := StreamSpec{Name: "x", MaxAge: new(Duration(7 * day))}
	l, _ := spec.Log("t", "n")
	l.Version, l.CreatedAt = 7, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b, err := json.Marshal(NewStream(&l))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"max_age":"7d"`, `"max_bytes":0`, `"version":7`, `"created_at":"2026-01-02T03:04:05Z"`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("%s lacks %s", b, part)
		}
	}
	if strings.Contains(string(b), "fsync_interval") {
		t.Errorf("%s has an interval that means nothing", b)
	}
	if part := `"keep":"all"`; !strings.Contains(string(b), part) || strings.Contains(string(b), "max_keys") || strings.Contains(string(b), "ttl") {
		t.Errorf("%s lacks %s, or has what means nothing with it", b, part)
	}
	l, _ = (&CacheSpec{Name: "x", TTL: new(Duration(time.Hour))}).Log("t", "n")
	b, err = json.Marshal(NewCache(&l))
	for _, part := range []string{`"keep":"newest"`, `"max_keys":10000000`, `"ttl":"1h"`} {
		if err != nil || !strings.Contains(string(b), part) {
			t.Errorf("%s lacks %s", b, part)
		}
	}
	l, _ = (&QueueSpec{Name: "x", MaxAge: new(Duration(day))}).Log("t", "n")
	b, err = json.Marshal(NewQueue(&l))
	for _, part := range []string{`"keep":"unsettled"`, `"max_age":"1d"`} {
		if err != nil || !strings.Contains(string(b), part) || strings.Contains(string(b), "max_keys") {
			t.Errorf("%s lacks %s", b, part)
		}
	}
	if ETag(7) != `"7"` {
		t.Error(ETag(7))
	}
}

func TestSettingsDiffer(t *testing.T) {
	a, _ := (&StreamSpec{Name: "x"}).Log("t", "n")
	b, _ := (&StreamSpec{Name: "x", Shards: new(2), MaxAge: new(Duration(day))}).Log("t", "n")
	b.Version, b.CreatedAt = 9, time.Unix(1, 0)
	if ps := SettingsDiffer(&a, &a); len(ps) != 0 {
		t.Fatal(ps)
	}
	if ps := SettingsDiffer(&a, &b); len(ps) != 2 || ps[0].String() != "shards: is 1, asked for 2" || ps[1].String() != "max_age: is 0s, asked for 1d" {
		t.Fatal(ps)
	}
}

func FuzzUnits(f *testing.F) {
	f.Add("1d12h30m")
	f.Add("64MiB")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(Duration(d).String()); err != nil || again != d {
				t.Errorf("%q is %v, written %q, read %v, %v", s, d, Duration(d), again, err)
			}
		}
		if n, err := ParseBytes(s); err == nil {
			if again, err := ParseBytes(FormatBytes(n)); err != nil || again != n {
				t.Errorf("%q is %d, written %q, read %d, %v", s, n, FormatBytes(n), again, err)
			}
		}
	})
}
