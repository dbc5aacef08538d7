// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"margay.dev/wire/token"
)

func TestBodiesAreStrict(t *testing.T) {
	l := newLab(t)
	l.do("POST", base, l.owner, `{"name":"there"}`).decode(http.StatusCreated, nil)
	for _, tc := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", base, `{"name":"x","bogus":1}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","Shards":3}`, 400, "bad_request"},
		{"POST", base, `{"name":"x","shards":3,"shards":4}`, 400, "bad_request"},
		{"POST", base, `{"name":"x","name":"y"}`, 400, "bad_request"},
		{"POST", base, `{"name":"x","shards":"3"}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","shards":1.5}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","max_bytes":1e30}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","max_age":7}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","max_age":"7 fortnights"}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","max_age":"-1s"}`, 422, "bad_request"},
		{"POST", base, `{"name":"x","id":"00000000000000000000000000000000"}`, 422, "bad_request"},
		{"POST", base, `{"shards":1}`, 422, "bad_request"},
		{"POST", base, `{}`, 422, "bad_request"},
		{"POST", base, `[]`, 422, "bad_request"},
		{"POST", base, `null`, 400, "bad_request"},
		{"POST", base, `"x"`, 422, "bad_request"},
		{"POST", base, `{"name":null}`, 400, "bad_request"},
		{"POST", base, ``, 400, "bad_request"},
		{"POST", base, `{`, 400, "bad_request"},
		{"POST", base, `{"name":"x"}{"name":"y"}`, 400, "bad_request"},
		{"POST", base, `{"name":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too_large"},
		{"POST", base, strings.Repeat("[", 20000), 400, "bad_request"},
		{"PATCH", base + "/there", `{"max_age":null}`, 400, "bad_request"},
		{"PATCH", base + "/there", `{"name":"other"}`, 422, "bad_request"},
		{"PATCH", base + "/there", `{"replicas":3}`, 422, "bad_request"},
		{"PATCH", base + "/there", ``, 400, "bad_request"},
		{"POST", "/v1/token", `{"api_key":["marker"]}`, 422, "bad_request"},
		{"POST", "/v1/token", `{"api_key":"mgk_marker","also":"marker"}`, 422, "bad_request"},
		{"POST", "/v1/token", `{"api_key":"marker"`, 400, "bad_request"},
		{"POST", "/v1/token", `{"api_key":"mgk_marker"}`, 401, "unauthenticated"},
	} {
		a := l.do(tc.method, tc.path, l.owner, tc.body)
		a.problem(tc.status, tc.code)
		if strings.Contains(a.body, "marker") {
			t.Errorf("%s repeats a secret: %s", tc.path, a.body)
		}
		if t.Failed() {
			t.Fatalf("at %.80s", tc.body)
		}
	}
	l.do("POST", base, l.owner, `{"name":"x"}`, "Content-Type", "text/plain").problem(http.StatusUnsupportedMediaType, "unsupported")
	a := l.do("GET", base, l.owner, "")
	if strings.Contains(a.body, `"name":"x"`) || strings.Count(a.body, `"id"`) != 1 {
		t.Errorf("a refused request had an effect: %s", a.body)
	}
}

func TestCheckKeys(t *testing.T) {
	for body, ok := range map[string]bool{
		`{}`: true, `[]`: true, `"A"`: true, `{"a":"A","b":["A",{"a":1}],"c":{"a":{"a":"B"}},"d":"d"}`: true, `{"a":["A","A"],"b":1}`: true,
		`{"A":1}`: false, `{"a":1,"a":2}`: false, `{"b":{"a":1},"a":2,"b":3}`: false, `[{"x":{"Y":1}}]`: false, `{"a":[1,{"b":1,"b":2}]}`: false,
		`{"a":{},"a":1}`: false, `{"a":null}`: false, `[null]`: false, `null`: false, `{"a":[],"B":1}`: false, `{"a`: true, `}`: true, `{"a":1]`: true,
	} {
		if err := checkKeys([]byte(body)); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzCheckKeys(f *testing.F) {
	f.Add([]byte(`{"a":["A",{"b":1}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = checkKeys(b) })
}

// RT-03: all problems at once, each with its path and the minimum.
func TestEveryProblemIsAnswered(t *testing.T) {
	l := newLab(t)
	p := l.do("POST", base, l.owner, `{"name":"A","shards":0,"replicas":3,"segment_bytes":64,"max_age":"1ms","max_bytes":-1,"ack":"none"}`).
		problem(http.StatusUnprocessableEntity, "bad_request")
	var paths []string
	for _, e := range p.Errors {
		paths = append(paths, e.Path)
	}
	if got := strings.Join(paths, " "); got != "name shards replicas ack max_age segment_bytes max_bytes" {
		t.Fatalf("%s in %+v", got, p)
	}
	if !strings.Contains(p.Errors[5].Message, "4096") || !strings.Contains(p.Errors[2].Message, "use replicas 1") {
		t.Errorf("%+v", p.Errors)
	}
}

// AU-15, AU-11: a path never addresses something else than what it says, whatever it is encoded in.
func TestEncodedPaths(t *testing.T) {
	l := newLab(t)
	l.do("POST", base, l.owner, `{"name":"a"}`).decode(http.StatusCreated, nil)
	l.do("POST", base, l.owner, `{"name":"b"}`).decode(http.StatusCreated, nil)
	_, onlyA := l.login("only-a", token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/default/a"})
	for _, path := range []string{
		base + "/a%2Fb", base + "/a%252Fb", base + "/a%5Cb", base + "/%2e%2e", base + "/..%2Fb", base + "/a%00", base + "/a%0Ab", base + "/A",
		base + "/" + strings.Repeat("x", 65), base + "/CON", base + "/%F0%9F%98%80", base + "/a%20", base + "/*", base + "/%7Bname%7D",
		"/v1/tenants/..%2Fdefault/namespaces/default/streams/a", "/v1/tenants/*/namespaces/default/streams/a", "/v1/tenants/%2A/namespaces/*/streams",
	} {
		for _, method := range []string{"GET", "DELETE", "PATCH"} {
			if strings.HasSuffix(path, "/streams") && method != "GET" {
				continue
			}
			l.do(method, path, l.owner, `{}`).problem(http.StatusBadRequest, "bad_request")
		}
	}
	for _, path := range []string{base + "//a", base + "/a/", base + "/a/b", "/v1", "/", "/v1/tenants", "/v1//token", "/openapi.yaml", "/docs", "/schemas/Stream.json"} {
		l.do("GET", path, l.owner, "").problem(http.StatusNotFound, "not_found")
	}
	for _, path := range []string{base + "/./a", base + "/x/../a"} {
		l.do("DELETE", path, l.owner, "").problem(http.StatusNotFound, "not_found")
	}
	// Another spelling of the same name is the same name, for the permission and for the handler alike.
	l.do("GET", base+"/%61", onlyA, "").decode(http.StatusOK, nil)
	l.do("GET", base+"/%62", onlyA, "").problem(http.StatusForbidden, "permission_denied")
	l.do("GET", "/v1/"+strings.Repeat("x", 64<<10), l.owner, "").problem(http.StatusRequestURITooLong, "too_large")
	a := l.do("PUT", base, l.owner, `{}`)
	a.problem(http.StatusMethodNotAllowed, "unsupported")
	if a.header.Get("Allow") != "GET, POST" {
		t.Errorf("allow %q", a.header.Get("Allow"))
	}
	l.do("BREW", base, l.owner, "").problem(http.StatusMethodNotAllowed, "unsupported")
	for _, name := range []string{"a", "b"} {
		l.do("GET", base+"/"+name, l.owner, "").decode(http.StatusOK, nil)
	}
}

// AU-10: who has no business with a thing is not told whether it exists.
func TestStrangersLearnNothing(t *testing.T) {
	l := newLab(t)
	secret, asCache := "/v1/tenants/acme/namespaces/shop/streams", "/v1/tenants/acme/namespaces/shop/caches"
	l.do("POST", secret, l.owner, `{"name":"plans"}`).decode(http.StatusCreated, nil)
	_, stranger := l.login("stranger", token.Grant{Actions: []token.Action{token.Any}, Resource: "other/*/*"})
	blank := func(s string, id string) string { return strings.ReplaceAll(s, id, "ID") }
	for _, tok := range []string{"", "garbage", stranger} {
		for _, tc := range []struct{ method, there, missing, body string }{
			{"GET", secret + "/plans", secret + "/xlans", ""},
			{"PATCH", secret + "/plans", secret + "/xlans", `{"max_age":"1d"}`},
			{"PATCH", secret + "/plans", secret + "/xlans", `{"shards":9}`},
			{"DELETE", secret + "/plans", secret + "/xlans", ""},
			{"GET", secret, strings.Replace(secret, "acme", "bcme", 1), ""},
			{"GET", asCache + "/plans", asCache + "/xlans", ""},
			{"PATCH", asCache + "/plans", asCache + "/xlans", `{"ttl":"1d"}`},
			{"DELETE", asCache + "/plans", asCache + "/xlans", ""},
		} {
			a, b := l.do(tc.method, tc.there, tok, tc.body), l.do(tc.method, tc.missing, tok, tc.body)
			body := strings.NewReplacer("xlans", "plans", "bcme", "acme").Replace(blank(b.body, b.header.Get("X-Request-Id")))
			if a.status != b.status || a.status < 401 || a.status > 403 || blank(a.body, a.header.Get("X-Request-Id")) != body {
				t.Errorf("%s %s:\n%d %s\n%d %s", tc.method, tc.there, a.status, a.body, b.status, b.body)
			}
		}
		// Creating tells neither.
		for _, path := range []string{secret, asCache} {
			a := l.do("POST", path, tok, `{"name":"plans","shards":7}`)
			b := l.do("POST", path, tok, `{"name":"xlans","shards":7}`)
			if a.status != b.status || a.status < 401 || a.status > 403 {
				t.Errorf("create at %s: %d and %d", path, a.status, b.status)
			}
		}
	}
	_, narrow := l.login("narrow", token.Grant{Actions: []token.Action{token.Manage}, Resource: "acme/shop/mine"})
	l.do("POST", secret, narrow, `{"name":"plans"}`).problem(http.StatusForbidden, "permission_denied")
	l.do("POST", secret, narrow, `{"name":"mine"}`).decode(http.StatusCreated, nil)
	if a := l.do("GET", secret, narrow, ""); strings.Contains(a.body, "plans") || !strings.Contains(a.body, "mine") {
		t.Errorf("listing: %s", a.body)
	}
}

// AU-12: the address that counts is the connection's.
func TestFailedLoginsAreLimitedPerAddress(t *testing.T) {
	l := newLab(t)
	good := fmt.Sprintf(`{"api_key":%q}`, l.key)
	bad := `{"api_key":"mgk_wrong"}`
	for i := range loginBurst {
		l.from("198.51.100.9:1", "POST", "/v1/token", "", bad, "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i),
			"X-Real-IP", fmt.Sprintf("203.0.113.%d", i), "True-Client-IP", "127.0.0.1").problem(http.StatusUnauthorized, "unauthenticated")
	}
	a := l.from("198.51.100.9:2", "POST", "/v1/token", "", bad, "X-Forwarded-For", "203.0.113.77")
	a.problem(http.StatusTooManyRequests, "overloaded")
	if a.header.Get("Retry-After") != "3" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	l.from("198.51.100.9:2", "POST", "/v1/token", "", good).problem(http.StatusTooManyRequests, "overloaded")
	l.from("198.51.100.10:2", "POST", "/v1/token", "", good).decode(http.StatusOK, nil)
	l.now = l.now.Add(loginRefill)
	l.from("198.51.100.9:2", "POST", "/v1/token", "", good).decode(http.StatusOK, nil)
	if strings.Contains(l.log.String(), "203.0.113.") || !strings.Contains(l.log.String(), "198.51.100.9") {
		t.Error("the log believes a header")
	}
	// A whole network of IPv6 is one address.
	for i := range loginBurst {
		l.from(fmt.Sprintf("[2001:db8::%x]:1", i+1), "POST", "/v1/token", "", bad).problem(http.StatusUnauthorized, "unauthenticated")
	}
	l.from("[2001:db8::ffff]:1", "POST", "/v1/token", "", bad).problem(http.StatusTooManyRequests, "overloaded")
}

func TestLimiterIsBounded(t *testing.T) {
	l, now := newLimiter(), time.Unix(1000, 0)
	for range loginBurst {
		l.failed("first", now)
	}
	if l.wait("first", now) == 0 {
		t.Fatal("not limited")
	}
	for i := range loginAddresses {
		l.failed(fmt.Sprint(i), now)
	}
	if len(l.known) != loginAddresses || l.order.Len() != loginAddresses {
		t.Errorf("%d known, %d in order", len(l.known), l.order.Len())
	}
	for range 3 * loginBurst {
		l.failed("steady", now)
	}
	if w := l.wait("steady", now.Add(-time.Hour)); w != loginRefill {
		t.Errorf("after the clock went back: %v", w)
	}
	if w := l.wait("steady", now.Add(time.Hour)); w != 0 {
		t.Errorf("an hour later: %v", w)
	}
}

// AU-13: a secret goes into no log line and no answer.
func TestSecretsStayInside(t *testing.T) {
	l := newLab(t)
	l.do("POST", "/v1/token", "", `{"api_key":"mgk_marker_marker"}`)
	l.do("GET", base, "marker.marker.marker", "")
	l.do("POST", base, l.owner, `{"name":"x"}`)
	out := l.log.String()
	for _, secret := range []string{"marker", strings.Split(l.key, "_")[2], l.owner} {
		if strings.Contains(out, secret) {
			t.Errorf("the log has %.20s", secret)
		}
	}
}

func TestRequestIDsAreNotForged(t *testing.T) {
	l := newLab(t)
	for given, taken := range map[string]bool{"abc-1.2_X": true, "a b": false, "a\"b": false, strings.Repeat("x", 65): false, "é": false} {
		if id := l.do("GET", base, l.owner, "", "X-Request-Id", given).header.Get("X-Request-Id"); (id == given) != taken || id == "" {
			t.Errorf("%q became %q", given, id)
		}
	}
}
