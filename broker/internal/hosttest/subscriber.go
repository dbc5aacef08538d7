// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"slices"
	"sync"
	"testing"

	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// Lane keeps what a subscription writes. The zero value takes everything at once.
type Lane struct {
	// Gate, when set, is waited for before each write: a subscriber that does not read.
	Gate chan struct{}

	mu  sync.Mutex
	out []byte
}

// Write implements stream.Lane.
func (l *Lane) Write(parts ...[]byte) error {
	if l.Gate != nil {
		<-l.Gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		l.out = append(l.out, p...)
	}
	return nil
}

// Told is one thing that a subscriber was told, in the order in which it came: records, a gap or a progress note.
type Told struct {
	Type     wire.Type
	Shard    uint32
	From, To uint64   // of records and gaps; To of a progress note is its position
	Values   []string // of records
	Gap      wire.GapReason
}

// Told takes the frames apart that were written so far.
func (l *Lane) Told(t testing.TB) (out []Told) {
	t.Helper()
	l.mu.Lock()
	rest := slices.Clone(l.out)
	l.mu.Unlock()
	for len(rest) > 0 {
		h, err := wire.ParseHeader([wire.HeaderSize]byte(rest))
		if err != nil {
			t.Fatal(err)
		}
		body := rest[wire.HeaderSize:][:h.Size]
		rest = rest[wire.HeaderSize+int(h.Size):]
		switch h.Type {
		case wire.TypeDeliver:
			var d wire.Deliver
			if err := d.Parse(body); err != nil {
				t.Fatal(err)
			}
			out = append(out, delivered(t, &d)...)
		case wire.TypeDeliverSlice:
			var d wire.DeliverSlice
			if err := d.Parse(body); err != nil {
				t.Fatal(err)
			}
			out = append(out, sliced(t, &d)...)
		case wire.TypeGap:
			var g wire.Gap
			if err := g.Parse(body); err != nil {
				t.Fatal(err)
			}
			out = append(out, Told{Type: h.Type, Shard: g.Shard, From: g.From, To: g.To, Gap: g.Reason})
		case wire.TypeProgress:
			var p wire.Progress
			if err := p.Parse(body); err != nil {
				t.Fatal(err)
			}
			out = append(out, Told{Type: h.Type, Shard: p.Shard, To: p.Next})
		default:
			t.Fatalf("a subscriber is told %v", h.Type)
		}
	}
	return out
}

func sliced(t testing.TB, d *wire.DeliverSlice) (out []Told) {
	t.Helper()
	for rest := d.Slices; len(rest) > 0; {
		s, err := batch.CheckSlice(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[s.Size():]
		told := Told{Type: wire.TypeDeliverSlice, Shard: d.Shard, From: s.BaseOffset(), To: s.NextOffset()}
		for r := s.Records(); ; {
			var rec batch.Record
			if ok, err := r.Next(&rec); err != nil {
				t.Fatal(err)
			} else if !ok {
				break
			}
			told.Values = append(told.Values, string(rec.Value))
		}
		out = append(out, told)
	}
	return out
}

func delivered(t testing.TB, d *wire.Deliver) (out []Told) {
	t.Helper()
	for rest := d.Batch; len(rest) > 0; {
		b, err := batch.CheckStored(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[b.Size():]
		told := Told{Type: wire.TypeDeliver, Shard: d.Shard, From: b.BaseOffset(), To: b.NextOffset()}
		each(t, b, func(_ uint64, value []byte) { told.Values = append(told.Values, string(value)) })
		out = append(out, told)
	}
	return out
}
