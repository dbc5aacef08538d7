// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// logRow is a log as the file has it, after the eight bytes of its version. The names stay for as long as the schema.
type logRow struct {
	Tenant          string `json:"tenant"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	Preset          string `json:"preset"`
	Shards          int    `json:"shards"`
	Replicas        int    `json:"replicas"`
	Ack             string `json:"ack"`
	MinAck          string `json:"min_ack"`
	Fsync           string `json:"fsync"`
	FsyncIntervalUS int64  `json:"fsync_interval_us,omitempty"`
	Storage         string `json:"storage"`
	Keep            string `json:"keep,omitempty"` // not there in a row that was made before the setting: all
	MaxKeys         int64  `json:"max_keys,omitempty"`
	TTLUS           int64  `json:"ttl_us,omitempty"`
	MaxAgeUS        int64  `json:"max_age_us,omitempty"`
	MaxBytes        int64  `json:"max_bytes,omitempty"`
	OnFull          string `json:"on_full,omitempty"` // not there in a row that was made before the setting: refuse
	DedupWindowUS   int64  `json:"dedup_window_us,omitempty"`
	SegmentBytes    int64  `json:"segment_bytes,omitempty"`
	SegmentAgeUS    int64  `json:"segment_age_us,omitempty"`
	CreatedUS       int64  `json:"created_us"`
	Deleted         bool   `json:"deleted,omitempty"`
}

func encodeLog(l *control.Log) ([]byte, error) {
	j, err := json.Marshal(logRow{
		Tenant: l.Tenant, Namespace: l.Namespace, Name: l.Name, Preset: l.Preset,
		Shards: l.Shards, Replicas: l.Replicas, Ack: l.Ack, MinAck: l.MinAck,
		Fsync: l.Fsync, FsyncIntervalUS: l.FsyncInterval.Microseconds(), Storage: l.Storage,
		Keep: l.Keep, MaxKeys: l.MaxKeys, TTLUS: l.TTL.Microseconds(),
		MaxAgeUS: l.MaxAge.Microseconds(), MaxBytes: l.MaxBytes, OnFull: l.OnFull, DedupWindowUS: l.DedupWindow.Microseconds(),
		SegmentBytes: l.SegmentBytes, SegmentAgeUS: l.SegmentAge.Microseconds(),
		CreatedUS: l.CreatedAt.UnixMicro(), Deleted: l.Deleted,
	})
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint64(nil, l.Version), j...), nil
}

func decodeLog(id batch.LogID, v []byte) (control.Log, error) {
	var r logRow
	if len(v) < 8 {
		return control.Log{}, fmt.Errorf("log %s: its row is cut off", id)
	}
	if err := json.Unmarshal(v[8:], &r); err != nil {
		return control.Log{}, fmt.Errorf("log %s: %w", id, err)
	}
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return control.Log{
		ID: id, Tenant: r.Tenant, Namespace: r.Namespace, Name: r.Name, Preset: r.Preset,
		Shards: r.Shards, Replicas: r.Replicas, Ack: r.Ack, MinAck: r.MinAck,
		Fsync: r.Fsync, FsyncInterval: us(r.FsyncIntervalUS), Storage: r.Storage,
		Keep: cmp.Or(r.Keep, control.KeepAll), MaxKeys: r.MaxKeys, TTL: us(r.TTLUS),
		MaxAge: us(r.MaxAgeUS), MaxBytes: r.MaxBytes, OnFull: cmp.Or(r.OnFull, control.OnFullRefuse),
		DedupWindow:  us(cmp.Or(r.DedupWindowUS, control.DefaultDedupWindow.Microseconds())),
		SegmentBytes: r.SegmentBytes, SegmentAge: us(r.SegmentAgeUS),
		CreatedAt: time.UnixMicro(r.CreatedUS).UTC(), Version: binary.BigEndian.Uint64(v), Deleted: r.Deleted,
	}, nil
}

// rowCache keeps decoded rows: a snapshot of thousands of logs after a change to one decodes one.
type rowCache struct {
	mu   sync.Mutex
	logs map[batch.LogID]control.Log
}

// all decodes every log in order of id, and forgets the rows that are no longer there.
func (c *rowCache) all(b *bolt.Bucket) ([]control.Log, error) {
	c.mu.Lock()
	known := c.logs
	c.mu.Unlock()
	// The maps are replaced, never written to, so that no lock is held while the file is read.
	next := make(map[batch.LogID]control.Log, len(known))
	logs := make([]control.Log, 0, len(known))
	err := b.ForEach(func(k, v []byte) error {
		id, err := logID(k)
		if err != nil {
			return err
		}
		l, ok := known[id]
		if !ok || len(v) < 8 || l.Version != binary.BigEndian.Uint64(v) {
			if l, err = decodeLog(id, v); err != nil {
				return err
			}
		}
		next[id] = l
		logs = append(logs, l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.logs = next
	c.mu.Unlock()
	return logs, nil
}

func logID(k []byte) (batch.LogID, error) {
	var id batch.LogID
	if len(k) != len(id) {
		return id, fmt.Errorf("a log id of %d bytes", len(k))
	}
	copy(id[:], k)
	return id, nil
}

const assignmentKeySize = len(batch.LogID{}) + 4

func assignmentKey(id batch.LogID, shard uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, assignmentKeySize), id[:]...), shard)
}

func encodeAssignment(a control.Assignment) []byte {
	return append(binary.BigEndian.AppendUint64(nil, a.Generation), a.Leader...)
}

var errAssignment = errors.New("a row of the assignments is cut off")

func decodeAssignment(k, v []byte) (control.Assignment, error) {
	if len(k) != assignmentKeySize || len(v) < 8 {
		return control.Assignment{}, errAssignment
	}
	id, err := logID(k[:len(k)-4])
	return control.Assignment{
		Log: id, Shard: binary.BigEndian.Uint32(k[len(k)-4:]),
		Generation: binary.BigEndian.Uint64(v), Leader: string(v[8:]),
	}, err
}

func nameKey(n catalog.Name) []byte { return []byte(n.String()) }

func getJSON[T any](b *bolt.Bucket, key []byte) (T, error) {
	var t T
	v := b.Get(key)
	if v == nil {
		return t, catalog.ErrNotFound
	}
	return t, json.Unmarshal(v, &t)
}

func putJSON(b *bolt.Bucket, key []byte, v any) error {
	j, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, j)
}
