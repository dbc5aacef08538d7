// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// plane is a control plane of one namespace, just big enough.
type plane struct {
	mu      sync.Mutex
	streams map[string]Stream
	failing int // requests to fail first
	lost    int // creates to carry out and not answer
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const prefix = "/v1/tenants/acme/namespaces/shop/streams"
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, prefix), "/")
	switch {
	case r.Header.Get("Authorization") != "Bearer t":
		problem(w, code.Unauthenticated)
	case !strings.HasPrefix(r.URL.Path, prefix):
		problem(w, code.NotFound)
	case p.failing > 0:
		p.failing--
		problem(w, code.Unavailable)
	case r.Method == http.MethodPost:
		p.create(w, r)
	case r.Method == http.MethodGet && name == "":
		p.list(w, r)
	default:
		s, ok := p.streams[name]
		if !ok {
			problem(w, code.NotFound)
			return
		}
		if m := r.Header.Get("If-Match"); m != "" && m != control.ETag(s.Version) {
			problem(w, code.Conflict)
			return
		}
		switch r.Method {
		case http.MethodDelete:
			delete(p.streams, name)
			w.WriteHeader(http.StatusNoContent)
			return
		case http.MethodPatch:
			var patch StreamPatch
			_ = json.NewDecoder(r.Body).Decode(&patch)
			s.MaxAge, s.Version = *patch.MaxAge, s.Version+1
			p.streams[name] = s
		}
		_ = json.NewEncoder(w).Encode(s)
	}
}

func (p *plane) create(w http.ResponseWriter, r *http.Request) {
	var spec StreamSpec
	_ = json.NewDecoder(r.Body).Decode(&spec)
	l, problems := spec.Log("acme", "shop")
	if len(problems) > 0 {
		problem(w, code.BadRequest)
		return
	}
	s := control.NewStream(&l)
	s.Version = 1
	if old, ok := p.streams[spec.Name]; ok {
		if old.Shards != s.Shards || old.MaxAge != s.MaxAge {
			problem(w, code.AlreadyExists)
			return
		}
		s = old
	}
	p.streams[spec.Name] = s
	if p.lost > 0 {
		p.lost--
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(s)
}

func (p *plane) list(w http.ResponseWriter, r *http.Request) {
	var names []string
	for n := range p.streams {
		if n > r.URL.Query().Get("cursor") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var page control.StreamList
	for _, n := range names[:min(2, len(names))] {
		page.Items = append(page.Items, p.streams[n])
	}
	if len(names) > 2 {
		page.Next = names[1]
	}
	_ = json.NewEncoder(w).Encode(page)
}

func problem(w http.ResponseWriter, c code.Code) {
	w.Header().Set("Content-Type", control.ProblemType)
	w.WriteHeader(control.HTTPStatus(c))
	_ = json.NewEncoder(w).Encode(control.NewProblem(code.New(c, "the test says so"), "r1"))
}

func start(t *testing.T) (*plane, *Client) {
	t.Helper()
	p := &plane{streams: map[string]Stream{}}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	c, err := New(Config{HTTP: srv.URL, Token: "t", Tenant: "acme", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return p, c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestEnsureStream(t *testing.T) {
	p, c := start(t)
	p.failing, p.lost = 2, 1
	spec := StreamSpec{Name: "orders", Shards: new(4)}
	for range 2 {
		s, err := c.EnsureStream(within(t), spec)
		if err != nil || s.Shards != 4 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	age := control.Duration(time.Hour)
	if _, err := c.UpdateStream(within(t), "orders", 1, StreamPatch{MaxAge: &age}); err != nil {
		t.Fatal(err)
	}
	// What the spec does not name is not compared.
	if _, err := c.EnsureStream(within(t), spec); err != nil {
		t.Errorf("after a change of something else: %v", err)
	}
	_, err := c.EnsureStream(within(t), StreamSpec{Name: "orders", Shards: new(5)})
	if !errors.Is(err, code.Conflict) || !strings.Contains(err.Error(), "shards is 4, asked 5") {
		t.Errorf("with other shards: %v", err)
	}
	if _, err := c.EnsureStream(within(t), StreamSpec{Name: "Not a name"}); !errors.Is(err, code.BadRequest) {
		t.Errorf("with a bad name: %v", err)
	}
}

func TestStreams(t *testing.T) {
	_, c := start(t)
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		if _, err := c.CreateStream(within(t), StreamSpec{Name: n}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for s, err := range c.Streams(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, s.Name)
	}
	if strings.Join(names, "") != "abcde" {
		t.Errorf("streams %v", names)
	}
	if err := c.DeleteStream(within(t), "acme/shop/c", 0); err != nil {
		t.Error(err)
	}
	if _, err := c.Stream(within(t), "c"); !errors.Is(err, code.NotFound) {
		t.Errorf("after deletion: %v", err)
	}
	if err := c.DeleteStream(within(t), "d", 9); !errors.Is(err, code.Conflict) {
		t.Errorf("at another version: %v", err)
	}
	for _, err := range c.Streams(canceled(t)) {
		if err == nil {
			t.Error("a listing without a context")
		}
	}
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
