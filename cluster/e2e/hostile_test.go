// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"margay.dev/cluster/process"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
)

// hostileGrowth is what all of them together may make a node hold.
const hostileGrowth = 50 << 20

// WR-10: connections that announce any size and say nothing more, before they have shown a token and behind it, are ended
// where the size is beyond what a frame may have, cost no memory, and concern nobody else.
func TestAnnouncedSizesCostNothing(t *testing.T) {
	t.Parallel()
	connections := 60
	if !testing.Short() {
		connections = 200
	}
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "s"})
	bystander := p.Connect().Publisher("s")
	publish(t, bystander, "k", "before")
	sizes := []uint32{0, 1, wire.MaxFrameBeforeAuth, wire.MaxFrameBeforeAuth + 1, wire.MaxFrame, wire.MaxFrame + 1, 0x7fffffff, 0xffffffff}
	type peer struct {
		conn session.Conn
		lane *session.Lane
		size uint32
		most uint32 // of a frame, for it
	}
	peers := make([]peer, connections)
	for i := range peers {
		conn := rawConn(t, p)
		x := peer{conn: conn, size: sizes[i/2%len(sizes)], most: wire.MaxFrameBeforeAuth}
		if i%2 == 0 {
			x.lane, x.most = authenticate(t, p, conn), wire.MaxFrame
		}
		// Before a token is shown only the first lane is served, and it is served once it has said something.
		if x.lane = openLane(t, conn); i%2 == 1 {
			ask(t, x.lane, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Client: "e2e"}, &wire.HelloOk{})
		}
		peers[i] = x
	}
	before := used(t, p)
	for _, x := range peers {
		if err := x.lane.Write(announce(x.size)); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range peers {
		if x.size <= x.most {
			continue
		}
		what := fmt.Sprintf("a connection to end that announced %#x bytes, of at most %#x", x.size, x.most)
		eventually(t, what, func() bool { return x.conn.Err() != nil })
		if !errors.Is(x.conn.Err(), code.Protocol) {
			t.Errorf("%#x bytes: the connection ended with %v", x.size, x.conn.Err())
		}
	}
	publish(t, bystander, "k", "after")
	after := used(t, p)
	t.Logf("%v; with %d hostile headers %v", before, connections, after)
	if grown := after.rss - before.rss; grown > hostileGrowth && !process.RaceDetector() {
		t.Errorf("%d headers made the node grow by %.1f MiB", connections, grown/(1<<20))
	}
}

func announce(size uint32) []byte {
	h := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Corr: 1})
	binary.LittleEndian.PutUint32(h[4:], size)
	return h
}

// WR-10: a batch whose numbers claim more than it has is refused, whatever its checksum says, and its connection goes on.
func TestClaimsWithinABatchCostNothing(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "s"})
	conn := rawConn(t, p)
	authenticate(t, p, conn)
	lane := openLane(t, conn)
	cc := p.Context()
	var info wire.LogInfo
	ask(t, lane, &wire.Lookup{Name: control.FullName(cc.Tenant, cc.Namespace, "s")}, &info)
	const atSize, atCount, atPlain, atMeta = 52, 60, 88, 92
	before := used(t, p)
	for name, edit := range map[string]func(b []byte){
		"2^31 records":           func(b []byte) { binary.LittleEndian.PutUint32(b[atCount:], 1<<31) },
		"a body of 4 GiB":        func(b []byte) { binary.LittleEndian.PutUint32(b[atPlain:], 1<<32-1) },
		"meta of 4 GiB":          func(b []byte) { binary.LittleEndian.PutUint32(b[atMeta:], 1<<32-1) },
		"meta beyond the end":    func(b []byte) { binary.LittleEndian.PutUint32(b[atMeta:], uint32(len(b))) },
		"a batch of 4 GiB":       func(b []byte) { binary.LittleEndian.PutUint32(b[atSize:], 1<<32-1) },
		"a key beyond the end":   func(b []byte) { copy(b[batch.HeaderSize+2:], "\xff\xff\x7f") },
		"a value beyond the end": func(b []byte) { copy(b[batch.HeaderSize+5:], "\xff\xff\xff\xff\x0f") },
	} {
		b := claiming(t, edit)
		if err := lane.SendFrame(1, &wire.Publish{Log: info.Log, Batch: b}); err != nil {
			t.Fatal(err)
		}
		h, body := readFrame(t, lane)
		var e wire.Error
		if h.Type != wire.TypeError || e.Parse(body) != nil || e.Class != code.ClassFatal {
			t.Errorf("%s: answered with %v %+v", name, h.Type, e)
		}
	}
	var ok wire.Published
	ask(t, lane, &wire.Publish{Log: info.Log, Batch: claiming(t, func([]byte) {})}, &ok)
	if ok.BaseOffset != 0 {
		t.Errorf("the good batch behind them got offset %d", ok.BaseOffset)
	}
	if grown := used(t, p).rss - before.rss; grown > hostileGrowth && !process.RaceDetector() {
		t.Errorf("claims made the node grow by %.1f MiB", grown/(1<<20))
	}
}

// claiming is a batch of one record that was edited, with the checksum that fits.
func claiming(t *testing.T, edit func([]byte)) batch.Batch {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	if err := bl.Add(batch.Record{Key: []byte("key"), Value: []byte("0123456789"), Timestamp: 1}); err != nil {
		t.Fatal(err)
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	edit(b)
	binary.LittleEndian.PutUint32(b[48:], crc32.Checksum(b[52:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
