// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/broker"
	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

func statusOf(t *testing.T, n *margaytest.Node) control.Status {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	s, err := api.Status(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fillStream(t *testing.T, n *margaytest.Node, records int) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateStream(within(t), cc.Tenant, cc.Namespace, control.StreamSpec{Name: "s", Shards: new(2)}); err != nil {
		t.Fatal(err)
	}
	p := n.Connect().Publisher("s")
	for i := range records { // one batch each
		if _, err := p.Publish(within(t), client.Record{Key: []byte{byte(i)}, Value: make([]byte, 200)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A healthy node says what it holds and has done; the numbers are those of its limits and of what happened.
func TestStatusOfAHealthyNode(t *testing.T) {
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Limits = broker.Limits{InFlight: 64 << 20} }))
	fillStream(t, n, 20)
	s := statusOf(t, n)
	if s.Verdict != control.Healthy || s.Node == "" || s.Cluster == "" || s.Version != "test" || s.StartedAt.After(s.Time) {
		t.Errorf("%+v", s)
	}
	for _, c := range s.Checks {
		if !c.OK || c.Reason != "" {
			t.Errorf("check %+v", c)
		}
	}
	if s.Shards.States["open"] != 2 || len(s.Shards.Unwell) > 0 || s.Shards.Unknown > 0 {
		t.Errorf("shards %+v", s.Shards)
	}
	if s.Disk.FreeBytes == 0 || s.Disk.ReserveBytes != 8<<20 || s.Disk.Full {
		t.Errorf("disk %+v", s.Disk)
	}
	if s.Connections == 0 || s.InFlight.Limit != 64<<20 || s.Memory.HeapBytes == 0 {
		t.Errorf("%d connections, in flight %+v, memory %+v", s.Connections, s.InFlight, s.Memory)
	}
	if s.Totals.Publishes != 20 || s.Totals.RecordsIn != 20 || s.Totals.Acks != 20 || s.Totals.AckSeconds <= 0 || s.Totals.BytesIn < 4000 || s.Totals.Flushes == 0 {
		t.Errorf("totals %+v", s.Totals)
	}
}

// RT-12: a damaged shard makes the node degraded, with log, shard and reason; it stays ready, and who has no
// credential learns neither names nor files.
func TestStatusNamesADamagedShard(t *testing.T) {
	n := margaytest.Start(t)
	fillStream(t, n, 60)
	n.Stop()
	segments, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", "0", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	n.StartAgain()
	s := statusOf(t, n)
	if s.Verdict != control.Degraded || s.Shards.States["open"] != 1 || s.Shards.States["quarantined"] != 1 {
		t.Fatalf("%+v", s)
	}
	u := s.Shards.Unwell
	if len(u) != 1 || u[0].Log != "default/default/s" || u[0].Shard != 0 || u[0].State != "quarantined" || !strings.Contains(u[0].Reason, filepath.Base(segments[0])) {
		t.Errorf("unwell %+v", u)
	}
	status, body := get(t, n.HTTP()+"/readyz", "")
	if status != http.StatusOK || !strings.Contains(body, "shards_sound") || strings.Contains(body, n.Dir()) || strings.Contains(body, ".seg") {
		t.Errorf("/readyz says %d %s", status, body)
	}
}

// The status is for who may manage the node.
func TestStatusNeedsACredential(t *testing.T) {
	n := margaytest.Start(t)
	tenant := n.Token(control.DefaultTenant, time.Hour, token.Grant{Actions: []token.Action{token.Any}, Resource: "default/*/*"})
	for who, tok := range map[string]string{"nobody": "", "a tenant": tenant} {
		want, c := http.StatusUnauthorized, code.Unauthenticated
		if tok != "" {
			want, c = http.StatusForbidden, code.PermissionDenied
		}
		if status, body := get(t, n.HTTP()+control.StatusPath, tok); status != want || !strings.Contains(body, c.Error()) || strings.Contains(body, "totals") {
			t.Errorf("%s gets %d %.100s", who, status, body)
		}
	}
	if status, body := get(t, n.HTTP()+"/openapi.json", ""); status != http.StatusOK || !strings.Contains(body, control.StatusPath) {
		t.Errorf("the description lacks the status: %d", status)
	}
}
