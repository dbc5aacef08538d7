// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"margay.dev/wire/batch"
)

// vector is the JSON beside the bytes of a golden vector: what any reader of the format must make of them.
type vector struct {
	About   string           `json:"about"`
	Form    string           `json:"form"`            // produced, stored or slice
	Error   string           `json:"error,omitempty"` // the rule that is broken; then nothing else is said
	Header  any              `json:"header,omitempty"`
	Records []recordMeaning  `json:"records,omitempty"`
	Entries []map[string]any `json:"entries,omitempty"`
}

type headerMeaning struct {
	Sequence         uint64   `json:"sequence"`
	BaseOffset       uint64   `json:"base_offset"`
	Generation       uint64   `json:"generation"`
	AppendTime       int64    `json:"append_time"`
	Flushed          uint64   `json:"flushed"`
	Size             int      `json:"size"`
	Attributes       []string `json:"attributes"`
	Count            int      `json:"count"`
	ProducerID       uint64   `json:"producer_id"`
	ProducerSequence uint64   `json:"producer_sequence"`
	FirstTimestamp   int64    `json:"first_timestamp"`
	PlainSize        int      `json:"plain_size"`
	DedupID          string   `json:"dedup_id,omitempty"` // hexadecimal digits

	Settlement map[string]any `json:"settlement,omitempty"`
}

type sliceHeaderMeaning struct {
	Sequence       uint64 `json:"sequence"`
	BaseOffset     uint64 `json:"base_offset"`
	NextOffset     uint64 `json:"next_offset"`
	Generation     uint64 `json:"generation"`
	AppendTime     int64  `json:"append_time"`
	FirstTimestamp int64  `json:"first_timestamp"`
	Size           int    `json:"size"`
	Count          int    `json:"count"`

	Attributes []string `json:"attributes,omitempty"`
}

// recordMeaning holds bytes as hexadecimal digits; null is none, a tombstone where it stands for a value.
type recordMeaning struct {
	Offset    uint64      `json:"offset"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"` // name as text, value in hexadecimal digits
	Timestamp int64       `json:"timestamp"`
	DelayUs   int64       `json:"delay_us"`
	TTLUs     int64       `json:"ttl_us"`
	Priority  uint8       `json:"priority,omitempty"`

	// Of a carried record, where it was first; of others these are the batch's.
	Generation *uint64 `json:"generation,omitempty"`
	AppendTime *int64  `json:"append_time,omitempty"`
}

// meaning says what the bytes mean according to this package.
func meaning(t *testing.T, about, form string, raw []byte) vector {
	t.Helper()
	if form == "slice" {
		return sliceMeaning(t, about, raw)
	}
	v := vector{About: about, Form: form}
	b, err := check(form, raw)
	if err == nil {
		err = b.VerifyRecords()
	}
	if err != nil {
		v.Error = ruleName(t, err)
		return v
	}
	v.Header = &headerMeaning{
		Sequence: b.Sequence(), BaseOffset: b.BaseOffset(), Generation: b.Generation(), AppendTime: b.AppendTime(),
		Flushed: b.Flushed(), Size: b.Size(), Attributes: attributeNames(b), Count: b.Count(), ProducerID: b.ProducerID(),
		ProducerSequence: b.ProducerSequence(), FirstTimestamp: b.FirstTimestamp(), PlainSize: b.PlainSize(),
		DedupID: hex.EncodeToString(b.DedupID()), Settlement: settlementMeaning(t, b),
	}
	v.Records = recordMeanings(t, b)
	entries, err := b.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		v.Entries = append(v.Entries, entryMeaning(t, e))
	}
	return v
}

func recordMeanings(t *testing.T, b batch.Batch) (out []recordMeaning) {
	t.Helper()
	r := b.Records()
	for {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		m := recordMeaningOf(r.Offset(), rec)
		if b.IsCarried() {
			m.Generation, m.AppendTime = new(r.Generation()), new(r.AppendTime())
		}
		out = append(out, m)
	}
}

func sliceMeaning(t *testing.T, about string, raw []byte) vector {
	t.Helper()
	v := vector{About: about, Form: "slice"}
	s, err := batch.CheckSlice(raw)
	var (
		records []batch.Record
		offsets []uint64
	)
	if err == nil {
		records, offsets, err = readSlice(s)
	}
	if err != nil {
		v.Error = ruleName(t, err)
		return v
	}
	v.Header = sliceHeaderMeaning{
		Sequence: s.Sequence(), BaseOffset: s.BaseOffset(), NextOffset: s.NextOffset(), Generation: s.Generation(),
		AppendTime: s.AppendTime(), FirstTimestamp: s.FirstTimestamp(), Size: s.Size(), Count: s.Count(),
	}
	if header := v.Header.(sliceHeaderMeaning); s.IsExpired() {
		header.Attributes = []string{"expired"}
		v.Header = header
	}
	for i, r := range records {
		v.Records = append(v.Records, recordMeaningOf(offsets[i], r))
	}
	return v
}

func check(form string, raw []byte) (batch.Batch, error) {
	if form == "stored" {
		return batch.CheckStored(raw)
	}
	return batch.CheckProduced(raw, batch.Limits{})
}

func attributeNames(b batch.Batch) []string {
	names := []string{}
	for _, a := range []struct {
		set  bool
		name string
	}{
		{b.Compressed(), "zstd"},
		{b.IsControl(), "control"},
		{b.IsCheckpoint(), "checkpoint"},
		{b.IsCheckpointStart(), "checkpoint_start"},
		{b.IsCarried(), "carried"},
		{b.HasSettlement(), "settlement"},
		{b.Scheduled(), "scheduled"},
		{b.Attributes()&batch.AttrDedup != 0, "dedup"},
		{b.IsExpired(), "expired"},
	} {
		if a.set {
			names = append(names, a.name)
		}
	}
	return names
}

func recordMeaningOf(offset uint64, r batch.Record) recordMeaning {
	m := recordMeaning{
		Offset: offset, Key: optionalHex(r.Key), Value: optionalHex(r.Value), Headers: [][2]string{}, Timestamp: r.Timestamp,
		DelayUs: int64(r.Delay / time.Microsecond), TTLUs: int64(r.TTL / time.Microsecond), Priority: r.Priority,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, [2]string{h.Key, hex.EncodeToString(h.Value)})
	}
	return m
}

func optionalHex(p []byte) *string {
	if p == nil {
		return nil
	}
	s := hex.EncodeToString(p)
	return &s
}

func entryMeaning(t *testing.T, e batch.Entry) map[string]any {
	t.Helper()
	switch e := e.(type) {
	case batch.Opening:
		return map[string]any{
			"type": "opening", "generation": e.Generation, "leader": e.Leader, "replicas": e.Replicas, "lossy": e.Lossy,
			"lossy_sequence": e.LossySequence, "lossy_offset": e.LossyOffset,
		}
	case batch.LogStart:
		return map[string]any{"type": "log_start", "sequence": e.Sequence, "offset": e.Offset}
	case batch.CheckpointPart:
		return map[string]any{"type": "checkpoint_part", "index": e.Index, "total": e.Total}
	case batch.Producer:
		window := []map[string]any{}
		for _, s := range e.Window {
			window = append(window, map[string]any{
				"sequence": s.Sequence, "base_offset": s.BaseOffset, "count": s.Count, "append_time": s.AppendTime,
				"generation": s.Generation,
			})
		}
		return map[string]any{
			"type": "producer", "id": e.ID, "last_sequence": e.LastSequence, "generation": e.Generation,
			"last_append": e.LastAppend, "window": window,
		}
	case batch.Generations:
		table := []map[string]any{}
		for _, g := range e.Table {
			table = append(table, map[string]any{"generation": g.Generation, "sequence": g.Sequence, "offset": g.Offset})
		}
		return map[string]any{"type": "generations", "table": table}
	case batch.Cursor:
		return map[string]any{
			"type": "cursor", "name": e.Name, "offset": e.Offset, "generation": e.Generation, "epoch": e.Epoch,
			"updated": e.Updated, "removed": e.Removed,
		}
	case batch.Dedup:
		stored := []map[string]any{}
		for _, s := range e.Stored {
			stored = append(stored, map[string]any{
				"id": hex.EncodeToString([]byte(s.ID)), "offset": s.Offset, "append_time": s.AppendTime,
			})
		}
		return map[string]any{"type": "dedup", "stored": stored}
	case batch.Last:
		return map[string]any{
			"type": "last", "id": e.ID, "grace_ms": e.Grace.Milliseconds(), "removed": e.Removed,
			"batch": hex.EncodeToString(e.Batch),
		}
	}
	return groupMeaning(t, e)
}

func ruleName(t *testing.T, err error) string {
	t.Helper()
	for name, rule := range map[string]error{
		"short": batch.ErrShort, "magic": batch.ErrMagic, "version": batch.ErrVersion, "attributes": batch.ErrAttributes,
		"checksum": batch.ErrChecksum, "size": batch.ErrSize, "count": batch.ErrCount, "varint": batch.ErrVarint,
		"limit": batch.ErrLimit, "schedule": batch.ErrSchedule, "timestamp": batch.ErrTimestamp,
		"producer": batch.ErrProducer, "assigned": batch.ErrAssigned, "compression": batch.ErrCompression,
		"unknown_entry": batch.ErrUnknownEntry, "entry": batch.ErrEntry, "dedup": batch.ErrDedup, "slice": batch.ErrSlice,
		"carried": batch.ErrCarried, "settlement": batch.ErrSettlement, "priority": batch.ErrPriority,
	} {
		if errors.Is(err, rule) {
			return name
		}
	}
	t.Fatalf("%v breaks no rule that has a name", err)
	return ""
}

func (v vector) encode(t *testing.T) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\n", out)
}
