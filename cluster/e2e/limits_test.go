// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/router/hash"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session/sessiontest"
)

// A write that the system cuts short is an error and leaves nothing: the other shard is served meanwhile, the offset goes
// to the next record, and no half record stands before new ones, neither at once nor after a restart (ST-12; S2, S3).
func TestAShortWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "short", Shards: new(2)})
	c := p.Connect(client.WithDeliveryTimeout(patience))
	pub := c.Publisher("short")
	here, there := keyOf(0, 2), keyOf(1, 2)
	history := map[string]string{} // where each acknowledged record lies, and what it is
	keep := func(ack client.Ack, value string) {
		t.Helper()
		at := fmt.Sprintf("%d/%d", ack.Shard, ack.Offset)
		if other, ok := history[at]; ok {
			t.Errorf("%s was acknowledged for %.20q and for %.20q", at, other, value)
		}
		history[at] = value
	}

	p.Limit(process.FileSize, 512<<10)
	big := strings.Repeat("big ", 256<<10)
	impatient := c.Publisher("short", client.WithoutIdempotence(), client.WithDeliveryTimeout(2*time.Second))
	ack, err := impatient.Publish(within(t), record(here, big))
	if err == nil {
		t.Fatalf("1 MiB was acknowledged at %+v in a file of at most 512 KiB", ack)
	}
	if e := client.AsError(err); e == nil || errors.Is(err, code.Internal) {
		t.Errorf("the failed publish is %v, want an error that says what happened", err)
	}
	t.Logf("the failed publish: %v", err)
	if size := bytesOf(t, segments(t, p, stream)); size > 64<<10 {
		t.Errorf("the segments have %d bytes: half a batch was left in front of what comes", size)
	}
	for i := range 5 {
		value := fmt.Sprintf("there %d", i)
		keep(publish(t, pub, there, value), value)
	}
	p.Unlimit(process.FileSize)
	for i := range 5 {
		value := fmt.Sprintf("here %d", i)
		keep(publish(t, pub, here, value), value)
	}
	check := func(when string) {
		t.Helper()
		found, next := map[string]string{}, map[uint32]uint64{}
		for _, rec := range readAll(t, c, "short") {
			found[fmt.Sprintf("%d/%d", rec.Shard, rec.Offset)] = string(rec.Value)
			if rec.Offset != next[rec.Shard] {
				t.Errorf("%s: shard %d goes from %d to %d: an offset was used up by a record that is not there", when, rec.Shard, next[rec.Shard], rec.Offset)
			}
			next[rec.Shard] = rec.Offset + 1
		}
		for at, value := range history {
			if found[at] != value {
				t.Errorf("%s: %s holds %.20q, acknowledged was %.20q", when, at, found[at], value)
			}
			delete(found, at)
		}
		for at, value := range found {
			if refusedOutright(err) || value != big {
				t.Errorf("%s: %s holds %.20q, which was not acknowledged", when, at, value)
			}
		}
	}
	check("at once")
	p.Kill()
	p.Start()
	check("after a restart")
	for i := range 5 {
		value := fmt.Sprintf("later %d", i)
		keep(publish(t, pub, here, value), value)
	}
	check("after more records")
}

func refusedOutright(err error) bool {
	e := client.AsError(err)
	return e != nil && e.Class != client.Unknown
}

// keyOf finds a key that belongs to a shard.
func keyOf(shard uint32, shards int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key-%d", i); hash.Shard([]byte(key), shards) == shard {
			return key
		}
	}
}

// holdConnections opens connections to the node's HTTP port and says nothing on them.
func holdConnections(t *testing.T, p *process.Process, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.HTTP(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// A node that runs out of descriptors refuses what needs new ones, with errors that say so, goes on with what it has, and
// loses nothing (OP-10; S2, R5).
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	if sessiontest.Transport() == "tls" {
		t.Skip("over TLS each lane is a descriptor, and there are not as many: session: TestSocketsAreBounded")
	}
	const limit, shards, tooMany = 256, 100, 400
	p := process.Start(t, process.Config{Wrap: process.Ulimit("-n", limit), Args: []string{"--set", "tcp=false"}})
	create(t, p, control.StreamSpec{Name: "fits", Shards: new(shards), SegmentBytes: new(int64(4 << 10))})
	c := p.Connect(client.WithDeliveryTimeout(patience))
	fits := c.Publisher("fits")
	acked := map[string]bool{}
	publishMany := func(round int) {
		t.Helper()
		type pending struct {
			value  string
			future client.Future
		}
		var all []pending
		for i := range 5 * shards {
			value := fmt.Sprintf("round %d record %d %s", round, i, strings.Repeat("x", 1000))
			all = append(all, pending{value, fits.PublishAsync(within(t), record(fmt.Sprintf("key-%d", i), value))})
		}
		for _, one := range all {
			if _, err := one.future.Wait(within(t)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			acked[one.value] = true
		}
	}
	publishMany(0)
	publishMany(1)
	if m, err := p.Metrics(); err != nil || m["process_max_fds"] != limit || m["process_open_fds"] < shards {
		t.Errorf("metrics show %v of %v descriptors (%v), want the use and the limit", m["process_open_fds"], m["process_max_fds"], err)
	}

	create(t, p, control.StreamSpec{Name: "toomany", Shards: new(tooMany)})
	over := p.Connect(client.WithoutIdempotence()).Publisher("toomany", client.WithDeliveryTimeout(2*time.Second))
	var mu sync.Mutex
	refused, kept := map[string]int{}, []string{}
	var publishing sync.WaitGroup
	for i := range tooMany {
		value := fmt.Sprintf("over %d", i)
		publishing.Go(func() {
			_, err := over.Publish(context.WithoutCancel(t.Context()), record(keyOf(uint32(i), tooMany), value))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				kept = append(kept, value)
				return
			}
			e := client.AsError(err)
			if e == nil || errors.Is(err, code.Internal) || e.Class == client.Fatal {
				t.Errorf("a shard that cannot be opened answers %v", err)
			}
			refused[err.Error()]++
		})
	}
	publishing.Wait()
	t.Logf("%d shards took a record; refused were: %v", len(kept), refused)
	if len(refused) == 0 {
		t.Errorf("%d shards on %d descriptors: nothing was refused", shards+tooMany, limit)
	}
	holdConnections(t, p, 200) // descriptors too, and anybody can take them
	publishMany(2)
	p.Kill()

	unlimited := process.Start(t, process.Config{Data: p.Data()})
	c = unlimited.Connect()
	got := map[string]int{}
	for _, v := range values(readAll(t, c, "fits")) {
		got[v]++
	}
	for v := range acked {
		if got[v] != 1 {
			t.Errorf("%.30q was acknowledged and is there %d times", v, got[v])
		}
	}
	if len(got) != len(acked) {
		t.Errorf("%d records are there, %d were acknowledged", len(got), len(acked))
	}
	stored := values(readAll(t, c, "toomany"))
	for _, v := range kept {
		if !slices.Contains(stored, v) {
			t.Errorf("%q was acknowledged and is not there", v)
		}
	}
}
