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

// startQueues starts a control plane that knows one queue, and a cache that has the other name.
func startQueues(t *testing.T) *Client {
	t.Helper()
	const prefix = "/v1/tenants/acme/namespaces/shop/queues"
	var have *control.Queue
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == prefix:
			var spec QueueSpec
			_ = json.NewDecoder(r.Body).Decode(&spec)
			l, problems := spec.Log("acme", "shop")
			switch {
			case len(problems) > 0:
				problem(w, code.BadRequest)
				return
			case spec.Name == "sessions" || have != nil && have.MaxAge != control.Duration(l.MaxAge):
				problem(w, code.AlreadyExists)
				return
			case have == nil:
				q := control.NewQueue(&l)
				q.Version, have = 1, &q
			}
		case have == nil || r.URL.Path != prefix && r.URL.Path != prefix+"/"+have.Name:
			problem(w, code.NotFound)
			return
		case r.Method == http.MethodPatch:
			var patch QueuePatch
			_ = json.NewDecoder(r.Body).Decode(&patch)
			have.MaxAge = *patch.MaxAge
		case r.Method == http.MethodDelete:
			have = nil
			w.WriteHeader(http.StatusNoContent)
			return
		case r.URL.Path == prefix:
			_ = json.NewEncoder(w).Encode(control.QueueList{Items: []Queue{*have}})
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

func TestEnsureQueue(t *testing.T) {
	c := startQueues(t)
	for range 2 {
		q, err := c.EnsureQueue(within(t), QueueSpec{Name: "emails"})
		if err != nil || q.Keep != control.KeepUnsettled || q.MaxAge != 0 {
			t.Fatalf("%+v, %v", q, err)
		}
	}
	hour := control.Duration(time.Hour)
	if _, err := c.EnsureQueue(within(t), QueueSpec{Name: "emails", Storage: new(control.StorageMemory)}); !errors.Is(err, code.BadRequest) {
		t.Errorf("of no sense: %v", err)
	}
	_, err := c.EnsureQueue(within(t), QueueSpec{Name: "emails", MaxAge: &hour})
	if !errors.Is(err, code.Conflict) || !strings.Contains(err.Error(), "queue emails exists with other settings: max_age is 0s, asked 1h") {
		t.Errorf("of another age: %v", err)
	}
	if _, err := c.EnsureQueue(within(t), QueueSpec{Name: "sessions"}); !errors.Is(err, code.AlreadyExists) {
		t.Errorf("of a cache's name: %v", err)
	}
	if q, err := c.UpdateQueue(within(t), "shop/emails", 1, QueuePatch{MaxAge: &hour}); err != nil || q.MaxAge != hour {
		t.Errorf("changed %+v, %v", q, err)
	}
	for q, err := range c.Queues(within(t)) {
		if err != nil || q.Name != "emails" || q.MaxAge != hour {
			t.Errorf("listed %+v, %v", q, err)
		}
	}
	if err := c.DeleteQueue(within(t), "acme/shop/emails", 0); err != nil {
		t.Error(err)
	}
	if _, err := c.Queue(within(t), "emails"); !errors.Is(err, code.NotFound) {
		t.Errorf("after deletion: %v", err)
	}
	if q, err := c.CreateQueue(within(t), QueueSpec{Name: "emails"}); err != nil || q.MaxAge != 0 {
		t.Errorf("made again %+v, %v", q, err)
	}
}
