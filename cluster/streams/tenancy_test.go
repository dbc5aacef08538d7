// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// limited returns a client with a token of its own.
func limited(t *testing.T, n *margaytest.Node, tenant string, grants ...token.Grant) *client.Client {
	t.Helper()
	c, err := client.Connect(within(t), n.URL(), client.WithCA([]byte(n.Context().CA)),
		client.WithToken(n.Token(tenant, time.Hour, grants...)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// S12: without a grant, another tenant's log can neither be used nor told from one that is not there; within
// the own tenant a refusal says what is missing.
func TestTenantsDoNotMeet(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	stranger := limited(t, n, "acme", token.Grant{Actions: []token.Action{token.Any}, Resource: "acme/*/*"})
	reader := limited(t, n, "default", token.Grant{Actions: []token.Action{token.Subscribe}, Resource: "default/default/s"})
	writer := limited(t, n, "default", token.Grant{Actions: []token.Action{token.Publish}, Resource: "default/*/s"})
	const name = "default/default/s"
	rec := client.Record{Value: []byte("x")}
	use := func(c *client.Client, name string) (publish, subscribe error) {
		_, publish = c.Publisher(name).Publish(within(t), rec)
		s, subscribe := c.Subscribe(within(t), name)
		if subscribe == nil {
			s.Close()
		}
		return publish, subscribe
	}
	p, s := use(stranger, name)
	wantCode(t, p, code.NotFound, code.ClassFatal)
	wantCode(t, s, code.NotFound, code.ClassFatal)
	missing, _ := use(stranger, "default/default/nosuch")
	if strings.ReplaceAll(p.Error(), name, "") != strings.ReplaceAll(missing.Error(), "default/default/nosuch", "") {
		t.Errorf("a log of another tenant (%v) can be told from one that is not there (%v)", p, missing)
	}
	p, s = use(reader, name)
	wantCode(t, p, code.PermissionDenied, code.ClassFatal)
	if s != nil {
		t.Errorf("a reader may not read: %v", s)
	}
	p, s = use(writer, name)
	wantCode(t, s, code.PermissionDenied, code.ClassFatal)
	if p != nil {
		t.Errorf("a writer may not write: %v", p)
	}
}

// A token that runs out ends its connection within seconds, unless another is shown.
func TestTokenExpiresOnLiveConnection(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	grant := token.FullGrant()
	c, err := client.Connect(within(t), n.URL(), client.WithCA([]byte(n.Context().CA)), client.WithToken(n.Token("default", time.Second, grant)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Subscribe(within(t), "default/default/s")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Records(within(t)) {
		wantCode(t, err, code.Unauthenticated, code.ClassFatal)
	}
}

// R6, ST-02, ST-03, RT-12: damage in one shard closes that shard, or ends a reader there, with file and
// position named and the files untouched; the others are served.
func TestDamageIsContained(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2), SegmentBytes: new(int64(4 << 10))})
	c := n.Connect()
	p := c.Publisher("s")
	for i := range 60 {
		for key := range 2 { // "0" and "1" lie in shards of their own, or in one: both shards get records
			if _, err := p.Publish(within(t), client.Record{Key: []byte{byte('0' + key), byte(i)}, Value: make([]byte, 300)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	o, err := c.Offsets(within(t), "s")
	if err != nil || o[0].Latest == 0 || o[1].Latest == 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	n.Stop()
	damaged, b := damage(t, n, 0)
	n.StartAgain()
	c = n.Connect()
	if _, err := c.Publisher("s").PublishBatch(within(t), client.Record{Key: keyOf(t, c, 1), Value: []byte("x")}); err != nil {
		t.Fatalf("the sound shard: %v", err)
	}
	take(t, subscribe(t, c, "s", client.FromEarliest(), client.Shards(1)), int(o[1].Latest))
	s, err := c.Subscribe(within(t), "s", client.FromEarliest(), client.Shards(0))
	var last uint64
	if err == nil {
		defer s.Close()
		for r, e := range s.Records(within(t)) {
			if err = e; e == nil {
				if r.Gap != nil {
					t.Fatalf("the damage was passed over: %+v", r.Gap)
				}
				last = r.Offset
			}
		}
	}
	wantCode(t, err, code.Quarantined, code.ClassFatal)
	if last+1 >= o[0].Latest {
		t.Errorf("all %d records were delivered over the damage", last+1)
	}
	if !strings.Contains(err.Error(), filepath.Base(damaged)) {
		t.Errorf("the error does not name the file: %v", err)
	}
	after, err := os.ReadFile(damaged)
	if err != nil || string(after) != string(b) {
		t.Errorf("the damaged file was changed, %v", err)
	}
}

// damage flips a bit in a sealed segment of a shard of the only stream of a node that is stopped, and returns its
// name and what it holds then.
func damage(t *testing.T, n *margaytest.Node, shard int) (name string, holds []byte) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", strconv.Itoa(shard), "*.seg"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	b, err := os.ReadFile(segments[1])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10
	if err := os.WriteFile(segments[1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	return segments[1], b
}

// keyOf finds a key that lies in a shard.
func keyOf(t *testing.T, c *client.Client, shard uint32) []byte {
	t.Helper()
	for i := range byte(100) {
		ack, err := c.Publisher("s").Publish(within(t), client.Record{Key: []byte{'k', i}, Value: []byte("probe")})
		if err == nil && ack.Shard == shard {
			return []byte{'k', i}
		}
		if err != nil && !errors.Is(err, code.Quarantined) {
			t.Fatal(err)
		}
	}
	t.Fatal("no key lies in the shard")
	return nil
}
