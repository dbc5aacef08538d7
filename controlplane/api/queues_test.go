// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"
	"testing"

	"margay.dev/wire/control"
)

const queues = "/v1/tenants/default/namespaces/default/queues"

func TestLifeOfAQueue(t *testing.T) {
	l := newLab(t)
	var made, got control.Queue
	a := l.do("POST", queues, l.owner, `{"name":"emails","shards":4,"max_age":"7d"}`)
	a.decode(http.StatusCreated, &made)
	if made.Keep != control.KeepUnsettled || made.MaxAge.String() != "7d" || made.Shards != 4 || strings.Contains(a.body, "max_keys") {
		t.Fatalf("made %s", a.body)
	}
	if again := l.do("POST", queues, l.owner, `{"name":"emails","shards":4,"max_age":"168h","keep":"unsettled"}`); again.body != a.body {
		t.Errorf("the same again: %s", again.body)
	}
	p := l.do("POST", queues, l.owner, `{"name":"emails","shards":4,"on_full":"drop-oldest"}`).problem(http.StatusConflict, "already_exists")
	if len(p.Errors) != 2 || p.Errors[0].Path != "max_age" || p.Errors[1].Path != "on_full" {
		t.Errorf("another of the name: %+v", p)
	}
	p = l.do("POST", queues, l.owner, `{"name":"fast","storage":"memory"}`).problem(http.StatusUnprocessableEntity, "bad_request")
	if len(p.Errors) != 1 || p.Errors[0].Path != "storage" {
		t.Errorf("in memory: %+v", p)
	}
	a = l.do("PATCH", queues+"/emails", l.owner, `{"max_age":"0s","max_bytes":1048576}`, "If-Match", a.header.Get("ETag"))
	a.decode(http.StatusOK, &got)
	want := made
	want.MaxAge, want.MaxBytes, want.Version = 0, 1<<20, got.Version
	if got != want {
		t.Errorf("patched %s", a.body)
	}
	for body, path := range map[string]string{
		`{"keep":"all"}`: "keep", `{"keep":"newest"}`: "keep", `{"max_keys":5}`: "max_keys", `{"ttl":"1h"}`: "ttl", `{"shards":8}`: "shards",
		`{"storage":"memory"}`: "storage",
	} {
		p := l.do("PATCH", queues+"/emails", l.owner, body).problem(http.StatusUnprocessableEntity, "bad_request")
		if len(p.Errors) != 1 || p.Errors[0].Path != path {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	l.do("DELETE", queues+"/emails", l.owner, "", "If-Match", a.header.Get("ETag")).decode(http.StatusNoContent, nil)
	l.do("GET", queues+"/emails", l.owner, "").problem(http.StatusNotFound, "not_found")
}

// A stream of all records may come to keep what groups have not settled; what is settled then does not come back.
func TestAStreamOfTheUnsettled(t *testing.T) {
	l := newLab(t)
	var made control.Stream
	l.do("POST", base, l.owner, `{"name":"jobs","max_age":"7d"}`).decode(http.StatusCreated, nil)
	l.do("PATCH", base+"/jobs", l.owner, `{"keep":"unsettled"}`).decode(http.StatusOK, &made)
	if made.Keep != control.KeepUnsettled || made.MaxAge.String() != "7d" {
		t.Errorf("%+v", made)
	}
	p := l.do("PATCH", base+"/jobs", l.owner, `{"keep":"all"}`).problem(http.StatusUnprocessableEntity, "bad_request")
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "create a new stream") {
		t.Errorf("%+v", p)
	}
}
