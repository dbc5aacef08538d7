// SPDX-License-Identifier: Apache-2.0

package client_test

import (
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
		"magic":   make([]byte, wire.HeaderSize),
		"4 GiB":   wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: 1<<32 - 1}),
		"large":   wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: wire.MaxFrame}),
		"trailer": append(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublished, Size: 3}), 1, 2, 3),
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
