// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// startCaches starts a control plane that knows one cache, and a stream that has the other name.
func startCaches(t *testing.T) *Client {
	t.Helper()
	const prefix = "/v1/tenants/acme/namespaces/shop/caches"
	var have *control.Cache
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == prefix:
			var spec CacheSpec
			_ = json.NewDecoder(r.Body).Decode(&spec)
			l, problems := spec.Log("acme", "shop")
			switch {
			case len(problems) > 0:
				problem(w, code.BadRequest)
				return
			case spec.Name == "orders" || have != nil && (have.TTL != control.Duration(l.TTL) || have.MaxKeys != l.MaxKeys):
				problem(w, code.AlreadyExists)
				return
			case have == nil:
				c := control.NewCache(&l)
				c.Version, have = 1, &c
			}
		case have == nil || r.URL.Path != prefix && r.URL.Path != prefix+"/"+have.Name:
			problem(w, code.NotFound)
			return
		case r.Method == http.MethodPatch:
			var patch CachePatch
			_ = json.NewDecoder(r.Body).Decode(&patch)
			have.TTL = *patch.TTL
		case r.Method == http.MethodDelete:
			have = nil
			w.WriteHeader(http.StatusNoContent)
			return
		case r.URL.Path == prefix:
			_ = json.NewEncoder(w).Encode(control.CacheList{Items: []Cache{*have}})
			return
		}
		_ = json.NewEncoder(w).Encode(have)
	}))
	t.Cleanup(srv.Close)
	c, err := New(Config{HTTP: srv.URL, Token: "t", Tenant: "acme", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestEnsureCache(t *testing.T) {
	c := startCaches(t)
	half := control.Duration(30 * time.Minute)
	spec := CacheSpec{Name: "sessions", TTL: &half}
	for range 2 {
		k, err := c.EnsureCache(within(t), spec)
		if err != nil || k.Keep != control.KeepNewest || k.TTL != half || k.MaxKeys != control.DefaultMaxKeys {
			t.Fatalf("%+v, %v", k, err)
		}
	}
	_, err := c.EnsureCache(within(t), CacheSpec{Name: "sessions", TTL: &half, MaxKeys: new(int64(5)), Keep: new(control.KeepAll)})
	if !errors.Is(err, code.BadRequest) {
		t.Errorf("of no sense: %v", err)
	}
	_, err = c.EnsureCache(within(t), CacheSpec{Name: "sessions", MaxKeys: new(int64(5))})
	if !errors.Is(err, code.Conflict) || !strings.Contains(err.Error(), "cache sessions exists with other settings: max_keys is 10000000, asked 5") {
		t.Errorf("of another bound: %v", err)
	}
	if _, err := c.EnsureCache(within(t), CacheSpec{Name: "orders"}); !errors.Is(err, code.AlreadyExists) {
		t.Errorf("of a stream's name: %v", err)
	}
	hour := control.Duration(time.Hour)
	if k, err := c.UpdateCache(within(t), "shop/sessions", 1, CachePatch{TTL: &hour}); err != nil || k.TTL != hour {
		t.Errorf("changed %+v, %v", k, err)
	}
	for k, err := range c.Caches(within(t)) {
		if err != nil || k.Name != "sessions" || k.TTL != hour {
			t.Errorf("listed %+v, %v", k, err)
		}
	}
	if err := c.DeleteCache(within(t), "acme/shop/sessions", 0); err != nil {
		t.Error(err)
	}
	if _, err := c.Cache(within(t), "sessions"); !errors.Is(err, code.NotFound) {
		t.Errorf("after deletion: %v", err)
	}
	if k, err := c.CreateCache(within(t), CacheSpec{Name: "sessions"}); err != nil || k.TTL != 0 {
		t.Errorf("made again %+v, %v", k, err)
	}
}
