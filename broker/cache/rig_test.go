// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/cache"
	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// bench is one shard in a bubble, and who writes to it: what is put is committed before time passes.
type bench struct {
	t     testing.TB
	rig   *hosttest.Rig
	log   control.Log
	shard *host.Shard
	lane  *hosttest.Answers
	n     uint64 // publishes
	next  uint64 // offset
	is    map[string]value

	held  atomic.Int64 // watches
	stats cache.Stats
}

// value is what the model holds of a key.
type value struct {
	value   string
	offset  uint64
	expires time.Time // zero for never
}

func inBubble(t *testing.T, edit func(*control.Log), run func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) {
			l.SegmentBytes = 16 << 10
			if edit != nil {
				edit(l)
			}
		})
		r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
		b := &bench{t: t, rig: r, log: l, shard: r.Shard(l.ID, 0), lane: hosttest.NewAnswers(), is: map[string]value{}}
		b.ready()
		run(t, b)
	})
}

// ready waits until the shard knows its keys.
func (b *bench) ready() {
	b.t.Helper()
	hosttest.Eventually(b.t, "the key index", func() bool {
		_, err := b.shard.Keys(b.t.Context())
		return err == nil
	})
}

// put stores records as one batch. A nil value deletes.
func (b *bench) put(recs ...batch.Record) {
	b.t.Helper()
	if err := b.shard.Submit(hosttest.RequestOf(b.t, b.lane, b.n, recs...)); err != nil {
		b.t.Fatal(err)
	}
	b.n++
	synctest.Wait()
	if got := b.lane.N.Load(); got != int64(b.n) || len(b.lane.Errs) > 0 {
		b.t.Fatalf("%d of %d publishes were answered: %v", got, b.n, b.lane.Errs)
	}
	at := time.UnixMicro(b.lane.Acks[b.n-1].AppendTime)
	b.next = b.lane.Acks[b.n-1].BaseOffset
	for _, r := range recs {
		switch {
		case r.Key == nil:
		case r.Value == nil:
			delete(b.is, string(r.Key))
		default:
			v := value{value: string(r.Value), offset: b.next}
			if r.TTL > 0 {
				v.expires = at.Add(r.TTL)
			}
			b.is[string(r.Key)] = v
		}
		b.next++
	}
}

// settle waits until nobody has anything to do.
func (b *bench) settle() {
	b.t.Helper()
	synctest.Wait()
}

// present is what the model holds now of a key.
func (b *bench) present(key string) (value, bool) {
	v, ok := b.is[key]
	return v, ok && (v.expires.IsZero() || time.Now().Before(v.expires))
}

func rec(key, value string) batch.Record {
	return batch.Record{Key: []byte(key), Value: []byte(value), Timestamp: 1}
}

func (b *bench) get(keys ...string) *wire.Got {
	b.t.Helper()
	f := &wire.Get{}
	for _, k := range keys {
		f.Keys = append(f.Keys, []byte(k))
	}
	got, err := (&cache.Getter{}).Get(b.t.Context(), b.shard, f)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}
