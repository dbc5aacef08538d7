// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// serve serves the API over TLS and gives the context with which a client finds it.
func serve(t *testing.T, s *Server) *control.Context {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: s.Handler(), TLSConfig: s.TLSConfig()}
	done := make(chan struct{})
	go func() { defer close(done); _ = h.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = h.Close(); <-done })
	key, _, err := s.EnsureAPIKey(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "context.yaml")
	err = control.SaveContext(path, &control.Context{
		Name: "local", Addresses: []string{"127.0.0.1:7420"}, HTTP: "https://" + l.Addr().String(), CA: string(s.CA()), APIKey: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.LoadContext(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What `serve` writes into a context is all that a client needs.
func TestContextToStream(t *testing.T) {
	s := start(t, t.TempDir())
	c, err := control.NewClient(serve(t, s).Client())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shards := 3
	made, err := c.CreateStream(t.Context(), "default", "default", control.StreamSpec{Name: "orders", Shards: &shards})
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.CreateStream(t.Context(), "default", "default", control.StreamSpec{Name: "orders", Shards: &shards})
	if err != nil || again != made {
		t.Fatalf("%+v, %v", again, err)
	}
	if l, created, err := s.EnsureStream(t.Context(), "default", "default", control.StreamSpec{Name: "orders", Shards: &shards}); err != nil || created || l.ID.String() != made.ID {
		t.Errorf("%v, %v", created, err)
	}
	if _, err := c.CreateStream(t.Context(), "default", "default", control.StreamSpec{Name: "orders"}); !errors.Is(err, code.AlreadyExists) {
		t.Errorf("with other settings: %v", err)
	}
	age := control.Duration(3600e9)
	patched, err := c.UpdateStream(t.Context(), "default", "default", "orders", made.Version, control.StreamPatch{MaxAge: &age})
	if err != nil || patched.MaxAge != age {
		t.Fatalf("%+v, %v", patched, err)
	}
	if _, err := c.UpdateStream(t.Context(), "default", "default", "orders", made.Version, control.StreamPatch{}); !errors.Is(err, code.Conflict) {
		t.Errorf("a stale version: %v", err)
	}
	if err := c.DeleteStream(t.Context(), "default", "default", "orders", made.Version); !errors.Is(err, code.Conflict) {
		t.Errorf("deleting a stale version: %v", err)
	}
	if err := c.DeleteStream(t.Context(), "default", "default", "orders", patched.Version); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stream(t.Context(), "default", "default", "orders"); !errors.Is(err, code.NotFound) {
		t.Errorf("deleted: %v", err)
	}
	for i := range 5 {
		if _, err := c.CreateStream(t.Context(), "default", "default", control.StreamSpec{Name: fmt.Sprint("s", i)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for cursor := ""; ; {
		page, err := c.Streams(t.Context(), "default", "default", cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(page.Items)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if seen != 5 {
		t.Errorf("%d listed", seen)
	}
	snap, err := s.Watch(t.Context(), 0)
	if err != nil || len(snap.Logs) != 6 {
		t.Fatalf("%d logs in the snapshot, %v", len(snap.Logs), err)
	}
	for _, l := range snap.Logs {
		if l.Deleted {
			err = s.Forget(t.Context(), l.ID)
		}
	}
	if snap, err2 := s.Watch(t.Context(), 0); err != nil || err2 != nil || len(snap.Logs) != 5 {
		t.Errorf("after forgetting: %d logs, %v, %v", len(snap.Logs), err, err2)
	}
}
