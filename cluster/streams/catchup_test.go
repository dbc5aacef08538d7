// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire"
	"margay.dev/wire/control"
)

// dueNote is a little more than the time after which a subscription is to give a sign of life.
const dueNote = 5500 * time.Millisecond

// A filtered subscription that reads a long history tells how far it is while it finds nothing: a reader whose
// connection is lost goes on there, and does not begin the scan anew.
func TestFilteredCatchUpTellsHowFarItIs(t *testing.T) {
	var slow atomic.Bool
	read := make(chan struct{}) // closed when the first read of the history may end
	disk := faultfs.Wrap(vfs.OS(), &faultfs.Rule{
		Ops: []faultfs.Op{faultfs.ReadAt}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") },
		Hook: func(faultfs.Call) {
			if slow.Load() {
				<-read
			}
		},
	})
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.FS = disk }))
	create(t, n, control.StreamSpec{Name: "s", Fsync: new(control.FsyncNever)})
	const total = 64
	p := n.Connect().Publisher("s")
	for range total { // a batch each, so that every read of the history moves on
		if _, err := p.Publish(within(t), client.Record{Value: make([]byte, 64<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Publish(within(t), client.Record{Key: []byte("wanted"), Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	slow.Store(true)
	r.want(l, &wire.Subscribe{
		Log: info.Log, Shards: []wire.Start{{Kind: wire.StartEarliest}}, Filters: []wire.Filter{{Kind: wire.FilterExact, Value: "wanted"}},
	}, &wire.Subscribed{})
	time.AfterFunc(dueNote, func() { close(read) })
	h, body := r.next(l)
	var note wire.Progress
	if h.Type != wire.TypeProgress || note.Parse(body) != nil || note.Next == 0 || note.Next >= total {
		t.Fatalf("within the history of %d records it gets %v %+v, want a note of how far it is", total, h.Type, note)
	}
	if h, _ = r.next(l); h.Type != wire.TypeDeliverSlice && h.Type != wire.TypeDeliver {
		t.Fatalf("then it gets %v", h.Type)
	}
}
