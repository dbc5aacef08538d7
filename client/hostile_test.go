// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
)

// WR-12: frames and flags of a newer broker are passed over, and the lanes live on.
func TestUnknownFramesArePassedOver(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	noise := wire.AppendHeader(nil, wire.Header{Type: 0x7f, Size: 5, Corr: 9})
	noise = append(noise, "hello"...)
	noise = append(wire.AppendHeader(noise, wire.Header{Type: wire.TypeProgress, Flags: 0x80, Size: 3}), 1, 2, 3)
	b.Script(func(s *fakebroker.Script) {
		s.Noise = noise
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict { return fakebroker.Verdict{Before: noise} }
	})
	c := connect(t, b)
	p := c.Publisher("orders")
	for i := range 10 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	wantRun(t, all(t, subscribe(t, c, client.FromEarliest(), client.UntilMark())), 0, 10)
	if n := b.Connections(); n != 3 {
		t.Errorf("%d connections were made, want 3", n)
	}
}

// WR-10: a broker that does not speak the protocol costs the client a connection, not its memory or its records.
func TestBrokenFramesEndTheConnection(t *testing.T) {
	for name, noise := range map[string][]byte{
		"magic":     make([]byte, wire.HeaderSize),
		"4 GiB":     wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: 1<<32 - 1}),
		"large":     wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: wire.MaxFrame}),
		"too large": wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: wire.MaxFrame + 1}),
		"2 GiB":     wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: 1<<31 - 1}),
		"trailer":   append(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: 3}), 1, 2, 3),
	} {
		t.Run(name, func(t *testing.T) {
			b := fakebroker.New(t)
			l := b.AddLog(stream, 1)
			n := 0
			b.Script(func(s *fakebroker.Script) {
				s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
					if n++; n%2 == 1 {
						return fakebroker.Verdict{Before: noise}
					}
					return fakebroker.Verdict{}
				}
			})
			p := connect(t, b).Publisher("orders")
			for i := range 4 {
				if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
					t.Fatal(err)
				}
			}
			wantValues(t, b.Values(l, 0), 4)
		})
	}
}

// WR-10: deliveries that announce more than they bring cost a subscriber its connection or the subscription, not its memory.
func TestHostileDeliveries(t *testing.T) {
	const batchAt = wire.HeaderSize + 12 // behind the frame's header, the shard and the mark
	claim := func(at int, n uint32) func(frame []byte) {
		return func(frame []byte) {
			b := frame[batchAt:]
			binary.LittleEndian.PutUint32(b[at:], n)
			binary.LittleEndian.PutUint32(b[48:], crc32.Checksum(b[52:], crc32.MakeTable(crc32.Castagnoli)))
		}
	}
	for name, spoil := range map[string]func(frame []byte){
		"4 GiB":          func(frame []byte) { binary.LittleEndian.PutUint32(frame[4:], 1<<32-1) },
		"2 GiB":          func(frame []byte) { binary.LittleEndian.PutUint32(frame[4:], 1<<31-1) },
		"16 MiB":         func(frame []byte) { binary.LittleEndian.PutUint32(frame[4:], wire.MaxFrame) },
		"2^31 records":   claim(60, 1<<31),
		"meta of 4 GiB":  claim(92, 1<<32-1),
		"batch of 4 GiB": claim(52, 1<<32-1),
		"body of 4 GiB":  claim(88, 1<<32-1),
	} {
		t.Run(name, func(t *testing.T) {
			b := fakebroker.New(t)
			l := b.AddLog(stream, 1)
			feed(t, b, l, 0, 10, 2)
			spoiled := false
			b.Script(func(s *fakebroker.Script) {
				s.Corrupt = func(frame []byte) {
					if !spoiled {
						spoil(frame)
					}
					spoiled = true
				}
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			wantRun(t, all(t, subscribe(t, connect(t, b), client.FromEarliest(), client.UntilMark())), 0, 10)
			runtime.ReadMemStats(&after)
			if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 50 {
				t.Errorf("the client allocated %d MiB", grown)
			}
		})
	}
}
