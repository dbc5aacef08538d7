// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"margay.dev/wire/control"
)

const caches = "/v1/tenants/default/namespaces/default/caches"

func TestLifeOfACache(t *testing.T) {
	l := newLab(t)
	var made, got control.Cache
	a := l.do("POST", caches, l.owner, `{"name":"sessions","shards":4,"ttl":"30m"}`)
	a.decode(http.StatusCreated, &made)
	if made.Keep != control.KeepNewest || made.MaxKeys != control.DefaultMaxKeys || made.TTL.String() != "30m" || made.Shards != 4 {
		t.Fatalf("made %s", a.body)
	}
	if again := l.do("POST", caches, l.owner, `{"name":"sessions","shards":4,"ttl":"1800s","keep":"newest"}`); again.body != a.body {
		t.Errorf("the same again: %s", again.body)
	}
	p := l.do("POST", caches, l.owner, `{"name":"sessions","shards":4,"max_keys":5}`).problem(http.StatusConflict, "already_exists")
	if len(p.Errors) != 2 || p.Errors[0].Path != "max_keys" || p.Errors[1].Path != "ttl" {
		t.Errorf("another of the name: %+v", p)
	}
	a = l.do("PATCH", caches+"/sessions", l.owner, `{"ttl":"0s","max_keys":5}`, "If-Match", a.header.Get("ETag"))
	a.decode(http.StatusOK, &got)
	want := made
	want.TTL, want.MaxKeys, want.Version = 0, 5, got.Version
	if got != want || strings.Contains(a.body, "ttl") {
		t.Errorf("patched %s", a.body)
	}
	l.do("GET", caches+"/sessions", l.owner, "").decode(http.StatusOK, &got)
	if got != want {
		t.Errorf("got %+v", got)
	}
	for body, path := range map[string]string{
		`{"keep":"all"}`: "keep", `{"max_age":"1h"}`: "max_age", `{"max_bytes":1048576}`: "max_bytes", `{"on_full":"drop-oldest"}`: "on_full",
		`{"max_keys":0}`: "max_keys", `{"ttl":"5000d"}`: "ttl", `{"storage":"memory"}`: "storage",
	} {
		p := l.do("PATCH", caches+"/sessions", l.owner, body).problem(http.StatusUnprocessableEntity, "bad_request")
		if len(p.Errors) != 1 || p.Errors[0].Path != path {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	l.do("DELETE", caches+"/sessions", l.owner, "", "If-Match", a.header.Get("ETag")).decode(http.StatusNoContent, nil)
	l.do("GET", caches+"/sessions", l.owner, "").problem(http.StatusNotFound, "not_found")
}

// Streams, caches and queues share the names of a namespace, and nothing else.
func TestPresetsAreApart(t *testing.T) {
	l := newLab(t)
	for i := range 3 {
		l.do("POST", base, l.owner, fmt.Sprintf(`{"name":"s%d"}`, i)).decode(http.StatusCreated, nil)
		l.do("POST", caches, l.owner, fmt.Sprintf(`{"name":"c%d"}`, i)).decode(http.StatusCreated, nil)
		l.do("POST", caches, l.owner, fmt.Sprintf(`{"name":"t%d"}`, i)).decode(http.StatusCreated, nil)
		l.do("POST", queues, l.owner, fmt.Sprintf(`{"name":"q%d"}`, i)).decode(http.StatusCreated, nil)
	}
	for path, want := range map[string][]string{
		base: {"s0", "s1", "s2"}, caches: {"c0", "c1", "c2", "t0", "t1", "t2"}, queues: {"q0", "q1", "q2"},
	} {
		for _, limit := range []int{1, 2, 3, 6, 100} {
			var names []string
			for cursor := ""; ; {
				var page control.LogPage
				l.do("GET", fmt.Sprintf("%s?limit=%d&cursor=%s", path, limit, cursor), l.owner, "").decode(http.StatusOK, &page)
				if len(page.Items) > limit || (len(page.Items) == 0 && page.Next != "") {
					t.Fatalf("%s by %d: a page of %d", path, limit, len(page.Items))
				}
				for i := range page.Items {
					names = append(names, page.Items[i].Name)
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s by %d: %v, want %v", path, limit, names, want)
			}
		}
	}
	for _, tc := range []struct{ at, own, kind string }{{base, "c1", "cache"}, {caches, "s1", "stream"}, {queues, "c1", "cache"}, {caches, "q1", "queue"}} {
		p := l.do("POST", tc.at, l.owner, `{"name":"`+tc.own+`"}`).problem(http.StatusConflict, "already_exists")
		if !strings.Contains(p.Detail, "the name of a "+tc.kind) {
			t.Errorf("%+v", p)
		}
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			p := l.do(method, tc.at+"/"+tc.own, l.owner, `{}`).problem(http.StatusNotFound, "not_found")
			if !strings.Contains(p.Detail, "is a "+tc.kind) {
				t.Errorf("%s: %+v", method, p)
			}
		}
	}
	l.do("GET", caches+"/c1", l.owner, "").decode(http.StatusOK, nil)
	l.do("GET", base+"/s1", l.owner, "").decode(http.StatusOK, nil)
}

// A stream may keep the newest of each key too; what it keeps can then not become more again.
func TestAStreamOfTheNewest(t *testing.T) {
	l := newLab(t)
	var made control.Stream
	l.do("POST", base, l.owner, `{"name":"state","keep":"newest","max_keys":10}`).decode(http.StatusCreated, &made)
	if made.Keep != control.KeepNewest || made.MaxKeys != 10 {
		t.Errorf("%+v", made)
	}
	l.do("POST", base, l.owner, `{"name":"orders","max_age":"7d"}`).decode(http.StatusCreated, nil)
	p := l.do("PATCH", base+"/orders", l.owner, `{"keep":"newest"}`).problem(http.StatusUnprocessableEntity, "bad_request")
	if len(p.Errors) != 1 || p.Errors[0].Path != "max_age" {
		t.Errorf("%+v", p)
	}
	l.do("PATCH", base+"/orders", l.owner, `{"keep":"newest","max_age":"0s"}`).decode(http.StatusOK, &made)
	if made.Keep != control.KeepNewest || made.MaxKeys != control.DefaultMaxKeys {
		t.Errorf("%+v", made)
	}
	p = l.do("PATCH", base+"/orders", l.owner, `{"keep":"all"}`).problem(http.StatusUnprocessableEntity, "bad_request")
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "create a new stream") {
		t.Errorf("%+v", p)
	}
}
