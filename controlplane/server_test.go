// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds each wait for something that another goroutine does.
const deadline = 10 * time.Second

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := New(t.Context(), Config{Dir: dir, Node: "n1", Cluster: "lab", Address: "127.0.0.1:7420"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := (&Config{Cluster: "A/B", Address: "0.0.0.0:0", Hosts: []string{"ok.example", "::", "a b"}}).Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"dir:", "node:", "cluster:", "address:", "hosts[1]:", "hosts[2]:"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %s", err, part)
		}
	}
	for _, address := range []string{"0.0.0.0:7420", "[::]:7420", ":7420", "h", "h:0", "h:"} {
		if (&Config{Dir: "d", Node: "n1", Address: address}).Validate() == nil {
			t.Errorf("address %q accepted", address)
		}
	}
	if err := (&Config{Dir: "d", Node: "n1"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestBrokerFollowsAndLeads(t *testing.T) {
	s := start(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	first, err := s.Watch(ctx, 0)
	if err != nil || first.Cluster != "lab" || len(first.Nodes) != 1 || first.Nodes[0] != (control.Node{ID: "n1", Address: "127.0.0.1:7420"}) {
		t.Fatalf("%+v, %v", first, err)
	}
	type result struct {
		snap control.Snapshot
		err  error
	}
	next := make(chan result, 1)
	go func() {
		snap, err := s.Watch(ctx, first.Version)
		next <- result{snap, err}
	}()
	shards := 2
	l, created, err := s.EnsureStream(ctx, "default", "default", control.StreamSpec{Name: "orders", Shards: &shards})
	if err != nil || !created {
		t.Fatal(created, err)
	}
	r := <-next
	if r.err != nil || len(r.snap.Logs) != 1 || r.snap.Logs[0] != l || len(r.snap.Assignments) != 2 {
		t.Fatalf("%+v, %v", r.snap, r.err)
	}
	granted, err := s.Lead(ctx, "n1", []control.ShardRef{{Log: l.ID, Shard: 0}, {Log: l.ID, Shard: 1}})
	if err != nil || len(granted) != 2 || granted[1].Generation != 1 {
		t.Fatalf("%+v, %v", granted, err)
	}
	if granted, err = s.Lead(ctx, "n2", []control.ShardRef{{Log: l.ID}}); err != nil || len(granted) != 0 {
		t.Fatalf("another node was given %+v, %v", granted, err)
	}
	if _, err := s.Watch(ctx, r.snap.Version+100); !errors.Is(err, code.Conflict) {
		t.Errorf("a version that never was: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Watch(gone, r.snap.Version+1); !errors.Is(err, context.Canceled) || !errors.Is(err, code.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The tokens that the control plane issues are those that a broker verifies with nothing but the snapshot.
func TestBrokerVerifiesOffline(t *testing.T) {
	s := start(t, t.TempDir())
	plain, created, err := s.EnsureAPIKey(t.Context(), "owner")
	if err != nil || !created || !s.ValidAPIKey(t.Context(), plain) {
		t.Fatal(created, err)
	}
	tok, err := s.Token(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := s.Watch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	v := token.Verifier{Issuer: snap.Issuer, Wall: time.Now, Keys: func(kid string) ed25519.PublicKey {
		for _, k := range snap.SigningKeys {
			if k.ID == kid {
				return k.Public
			}
		}
		return nil
	}}
	claims, err := v.Verify(tok.Token)
	if err != nil || claims.Tenant != "default" || !claims.Allows(token.Publish, "default/default/orders") {
		t.Fatalf("%+v, %v", claims, err)
	}
}

func TestAPIKeyIsShownOnce(t *testing.T) {
	dir := t.TempDir()
	s, err := New(t.Context(), Config{Dir: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := s.EnsureAPIKey(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := New(t.Context(), Config{Dir: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Cluster() != s.Cluster() || !strings.HasPrefix(s.Cluster(), "margay-") {
		t.Errorf("cluster %q, then %q", s.Cluster(), again.Cluster())
	}
	if shown, created, err := again.EnsureAPIKey(t.Context(), "owner"); err != nil || created || shown != "" {
		t.Errorf("second time: %q, %v, %v", shown, created, err)
	}
	if !again.ValidAPIKey(t.Context(), plain) {
		t.Error("the key is not good after a restart")
	}
	next, err := again.RotateAPIKey(t.Context(), "owner")
	if err != nil || again.ValidAPIKey(t.Context(), plain) || !again.ValidAPIKey(t.Context(), next) {
		t.Errorf("rotated: %v", err)
	}
	if _, _, err := again.EnsureAPIKey(t.Context(), "../x"); !errors.Is(err, code.BadRequest) {
		t.Errorf("a bad name: %v", err)
	}
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := New(t.Context(), Config{Dir: dir, Node: "n1", Cluster: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{Dir: dir, Node: "n1"}); !errors.Is(err, catalog.ErrLocked) {
		t.Errorf("a second one on the same directory: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{Dir: dir, Node: "n1", Cluster: "other"}); !errors.Is(err, catalog.ErrForeign) {
		t.Errorf("another cluster: %v", err)
	}
	if _, err := New(t.Context(), Config{Dir: dir, Node: "n2", Cluster: "lab"}); !errors.Is(err, catalog.ErrForeign) {
		t.Errorf("another node: %v", err)
	}
}

func TestEverythingInTheDirectoryIsForItsOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fresh")
	start(t, dir)
	files := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !e.IsDir() {
			files++
		}
		return nil
	})
	if err != nil || files != 4 {
		t.Fatalf("%d files, %v", files, err)
	}
}

func TestAddressMayComeLater(t *testing.T) {
	s, err := New(t.Context(), Config{Dir: t.TempDir(), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetAddress(t.Context(), "0.0.0.0:1"); err == nil {
		t.Error("a wildcard is no address")
	}
	if err := s.SetAddress(t.Context(), "127.0.0.1:4711"); err != nil {
		t.Fatal(err)
	}
	if snap, err := s.Watch(t.Context(), 0); err != nil || snap.Nodes[0].Address != "127.0.0.1:4711" {
		t.Fatalf("%+v, %v", snap.Nodes, err)
	}
}

func TestCloseEndsWatch(t *testing.T) {
	s, err := New(t.Context(), Config{Dir: t.TempDir(), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	snap, err := s.Watch(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Watch(ctx, snap.Version)
		ended <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, code.ShuttingDown) {
		t.Fatal(err)
	}
}
