// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	"margay.dev/broker/group"
	"margay.dev/wire/batch"
)

// bounded is a credit of so many messages.
type bounded struct{ left int }

func (b *bounded) Take(n int) int { n = min(n, b.left); b.left -= n; return n }
func (b *bounded) Give(n int)     { b.left += n }

// BenchmarkWorkOff is what the core does for a message that is handed out and settled, with 4 consumers.
func BenchmarkWorkOff(b *testing.B) {
	c := New(Config{Node: "n", Generation: 1})
	var eff Effects
	now, flushed := int64(1), uint64(0)
	step := func(ev Event) {
		c.Step(now, ev, &eff)
		if n := len(eff.Append); n > 0 {
			flushed = eff.Append[n-1].Sequence() + 1
			c.Step(now, Flushed{Length: flushed}, &eff)
		}
	}
	s := batch.DefaultGroupSettings()
	step(&GroupCommand{group.Command{Op: group.Create, Name: "g", Group: 7, Settings: &s}})
	eff.Reset()
	builder := batch.NewBuilder(batch.Limits{})
	for range 1000 {
		_ = builder.Add(batch.Record{Value: make([]byte, 128)})
	}
	for range 4 {
		step(&JoinGroup{Group: "g", Consumer: &group.Consumer{Credit: &bounded{1000}}})
		eff.Reset()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += 1000 {
		x, _ := builder.Build(0, 0, batch.None)
		step(&Publish{Batch: x})
		for _, a := range eff.Answers {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
		for len(eff.Hands) > 0 {
			var list []*group.Settlement
			for _, h := range eff.Hands {
				x := &group.Settlement{Group: 7, Generation: 1}
				for _, it := range h.Items {
					x.Tokens = append(x.Tokens, group.Token{Op: group.Ack, HandOut: it.HandOut, Offset: it.Offset})
				}
				list = append(list, x)
			}
			eff.Reset()
			step(&Settle{List: list})
		}
		eff.Reset()
		builder.Reset()
		for range 1000 {
			_ = builder.Add(batch.Record{Value: make([]byte, 128)})
		}
		now++
	}
	step(&Inspect{Look: func(v *group.View) {
		if i, _ := v.Info("g"); i.Totals.Acked == 0 || i.Ready+i.InFlight > 0 {
			b.Fatalf("%+v", i)
		}
	}})
}
