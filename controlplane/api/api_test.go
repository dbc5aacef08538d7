// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/controlplane/catalog/embedded"
	"margay.dev/controlplane/identity"
	"margay.dev/controlplane/logs"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

const base = "/v1/tenants/default/namespaces/default/streams"

// lab is an API over a store of its own, with a clock that a test moves.
type lab struct {
	t     *testing.T
	api   *API
	store *embedded.Store
	now   time.Time
	log   lockedBuffer
	level slog.LevelVar
	owner string // a token for everything
	key   string // the API key it is from
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	wall := func() time.Time { return l.now }
	store, err := embedded.Open(filepath.Join(t.TempDir(), "catalog.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l.store = store
	issuer, err := identity.NewIssuer(t.Context(), store, "margay/lab", wall)
	if err != nil {
		t.Fatal(err)
	}
	l.level.Set(slog.LevelDebug)
	l.api, err = New(Config{
		Logs: &logs.Service{Store: store, Leader: "n1", Wall: wall}, Issuer: issuer, Wall: wall,
		Logger: slog.New(slog.NewJSONHandler(&l.log, &slog.HandlerOptions{Level: &l.level})), Level: &l.level,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.key, l.owner = l.login("owner", token.FullGrant())
	return l
}

// login makes an API key with the grants and exchanges it for a token.
func (l *lab) login(name string, grants ...token.Grant) (key, tok string) {
	l.t.Helper()
	plain, row := identity.NewAPIKey(name, "default", grants, l.now)
	if err := l.store.AddAPIKey(l.t.Context(), row, false); err != nil {
		l.t.Fatal(err)
	}
	r := l.do("POST", "/v1/token", "", fmt.Sprintf(`{"api_key":%q}`, plain))
	var out control.TokenResponse
	r.decode(http.StatusOK, &out)
	return plain, out.Token
}

type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   string
}

func (l *lab) do(method, path, tok, body string, headers ...string) answer {
	l.t.Helper()
	return l.from("192.0.2.1:4711", method, path, tok, body, headers...)
}

func (l *lab) from(peer, method, path, tok, body string, headers ...string) answer {
	l.t.Helper()
	req := httptest.NewRequestWithContext(l.t.Context(), method, path, strings.NewReader(body))
	req.RemoteAddr = peer
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if tok != "" {
		req.Header.Set("Authorization", "Bearer "+tok)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.api.ServeHTTP(w, req)
	b, err := io.ReadAll(w.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{t: l.t, what: method + " " + path, status: w.Code, header: w.Header(), body: string(b)}
}

func (a answer) decode(status int, into any) {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d %s, want %d", a.what, a.status, a.body, status)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		a.t.Fatalf("%s: %q: %v", a.what, a.body, err)
	}
}

// problem checks that the answer is a whole problem document with the status and code.
func (a answer) problem(status int, code string) control.ProblemDocument {
	a.t.Helper()
	var p control.ProblemDocument
	a.decode(status, &p)
	if ct := a.header.Get("Content-Type"); ct != control.ProblemType {
		a.t.Errorf("%s: content type %q", a.what, ct)
	}
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == "" || p.Remedy == "" || p.Class == "" ||
		p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.t.Errorf("%s: want code %s in %+v", a.what, code, p)
	}
	return p
}

// The exact list of what needs no token; everything else the router serves does.
func TestEveryRouteNeedsAToken(t *testing.T) {
	l := newLab(t)
	routes, err := l.api.Routes()
	if err != nil || len(routes) < 7 {
		t.Fatalf("%v, %v", routes, err)
	}
	openRoutes := []string{"GET /openapi.json", "POST /v1/token"}
	expired := l.owner
	_, powerless := l.login("powerless", token.Grant{Actions: []token.Action{token.Publish}, Resource: "*"})
	for _, route := range routes {
		if slices.Contains(openRoutes, route) {
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{tenant}", "default", "{namespace}", "default", "{name}", "orders").Replace(path)
		for name, tok := range map[string]string{"no": "", "garbage": "garbage", "forged": l.owner[:len(l.owner)-6] + "AAAAAA"} {
			a := l.do(method, path, tok, `{"name":"orders"}`)
			a.problem(http.StatusUnauthorized, "unauthenticated")
			if a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s token: no WWW-Authenticate", route, name)
			}
		}
		l.do(method, path, "", `{"name":"orders"}`, "Authorization", "Basic "+l.owner).problem(http.StatusUnauthorized, "unauthenticated")
		l.do(method, path, powerless, `{"name":"orders"}`).problem(http.StatusForbidden, "permission_denied")
	}
	l.now = l.now.Add(identity.TokenLife)
	if p := l.do("GET", base, expired, "").problem(http.StatusUnauthorized, "unauthenticated"); !strings.Contains(p.Detail, "expired") {
		t.Errorf("expired: %+v", p)
	}
}

func TestDocumentAgreesWithTheRouter(t *testing.T) {
	l := newLab(t)
	a := l.do("GET", OpenAPIPath, "", "")
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID string                     `json:"operationId"`
			Responses   map[string]json.RawMessage `json:"responses"`
			Security    *[]json.RawMessage         `json:"security"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
		Security []json.RawMessage `json:"security"`
	}
	a.decode(http.StatusOK, &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || a.header.Get("Content-Type") != "application/json" || len(doc.Security) != 1 {
		t.Errorf("openapi %q", doc.OpenAPI)
	}
	documented := []string{"GET " + OpenAPIPath}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || !strings.Contains(string(op.Responses["default"]), "ProblemDocument") {
				t.Errorf("%s %s: %+v", method, path, op)
			}
			if isOpen := op.Security != nil && len(*op.Security) == 0; isOpen != (path == "/v1/token") {
				t.Errorf("%s %s says open: %v", method, path, isOpen)
			}
		}
	}
	routes, err := l.api.Routes()
	slices.Sort(documented)
	if err != nil || !slices.Equal(routes, documented) {
		t.Errorf("the router serves %v\nthe document has %v", routes, documented)
	}
	for _, schema := range []string{"Stream", "StreamSpec", "StreamPatch", "StreamList", "Cache", "CacheSpec", "CachePatch", "CacheList", "ProblemDocument", "TokenRequest", "TokenResponse"} {
		if doc.Components.Schemas[schema] == nil {
			t.Errorf("no schema %s", schema)
		}
	}
	if strings.Contains(a.body, "ErrorModel") {
		t.Error("the library's error model is in the document")
	}
}

func TestLifeOfAStream(t *testing.T) {
	l := newLab(t)
	var made, got control.Stream
	a := l.do("POST", base, l.owner, `{"name":"orders","shards":4,"max_age":"7d"}`)
	a.decode(http.StatusCreated, &made)
	etag := a.header.Get("ETag")
	if made.ID == "" || made.Shards != 4 || made.MaxAge.String() != "7d" || made.Ack != "quorum" || etag != control.ETag(made.Version) ||
		!made.CreatedAt.Equal(l.now) {
		t.Fatalf("made %s with ETag %s", a.body, etag)
	}
	again := l.do("POST", base, l.owner, `{"name":"orders","shards":4,"max_age":"168h"}`)
	if again.status != http.StatusCreated || again.body != a.body || again.header.Get("ETag") != etag {
		t.Errorf("the same again: %d %s", again.status, again.body)
	}
	p := l.do("POST", base, l.owner, `{"name":"orders","shards":5}`).problem(http.StatusConflict, "already_exists")
	if len(p.Errors) != 2 || p.Errors[0].Path != "shards" || p.Errors[1].Path != "max_age" {
		t.Errorf("another of the name: %+v", p)
	}
	l.do("GET", base+"/orders", l.owner, "").decode(http.StatusOK, &got)
	if got != made {
		t.Errorf("got %+v", got)
	}
	a = l.do("PATCH", base+"/orders", l.owner, `{"max_bytes":1048576}`, "If-Match", etag)
	a.decode(http.StatusOK, &got)
	want := made
	want.MaxBytes, want.Version = 1<<20, got.Version
	if got != want || got.Version <= made.Version || a.header.Get("ETag") == etag {
		t.Errorf("patched %+v", got)
	}
	l.do("PATCH", base+"/orders", l.owner, `{"max_bytes":0}`, "If-Match", etag).problem(http.StatusPreconditionFailed, "conflict")
	l.do("DELETE", base+"/orders", l.owner, "", "If-Match", etag).problem(http.StatusPreconditionFailed, "conflict")
	for _, bad := range []string{`"x"`, `7`, `W/"7"`, `"7", "8"`, `"07"`, `"0"`, `""`, `"-1"`} {
		l.do("DELETE", base+"/orders", l.owner, "", "If-Match", bad).problem(http.StatusBadRequest, "bad_request")
	}
	l.do("PATCH", base+"/orders", l.owner, `{"shards":8}`).problem(http.StatusUnprocessableEntity, "bad_request")
	l.do("DELETE", base+"/orders", l.owner, "", "If-Match", a.header.Get("ETag")).decode(http.StatusNoContent, nil)
	l.do("DELETE", base+"/orders", l.owner, "").problem(http.StatusNotFound, "not_found")
	l.do("GET", base+"/orders", l.owner, "").problem(http.StatusNotFound, "not_found")
	l.do("PATCH", base+"/orders", l.owner, `{}`).problem(http.StatusNotFound, "not_found")
	l.do("POST", base, l.owner, `{"name":"orders"}`).decode(http.StatusCreated, &got)
	if got.ID == made.ID {
		t.Error("an id was used again")
	}
}

func TestListPages(t *testing.T) {
	l := newLab(t)
	for i := range 7 {
		l.do("POST", base, l.owner, fmt.Sprintf(`{"name":"s%d"}`, i)).decode(http.StatusCreated, nil)
	}
	list := func(tok, query string) control.StreamList {
		t.Helper()
		var page control.StreamList
		l.do("GET", base+query, tok, "").decode(http.StatusOK, &page)
		return page
	}
	names := func(s []control.Stream) (names []string) {
		for _, x := range s {
			names = append(names, x.Name)
		}
		return names
	}
	if page := list(l.owner, ""); len(page.Items) != 7 || page.Next != "" {
		t.Errorf("%+v", page)
	}
	if page := list(l.owner, "?limit=7"); len(page.Items) != 7 || page.Next != "" {
		t.Errorf("an exact page has a next one: %+v", page)
	}
	var all []string
	for cursor := ""; ; {
		page := list(l.owner, "?limit=3&cursor="+cursor)
		all = append(all, names(page.Items)...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(all, []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}) {
		t.Errorf("%v", all)
	}
	_, few := l.login("few", token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/default/s1"},
		token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/default/s5"},
		token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/default/s6"})
	first := list(few, "?limit=2")
	second := list(few, "?limit=2&cursor="+first.Next)
	if !slices.Equal(append(names(first.Items), names(second.Items)...), []string{"s1", "s5", "s6"}) || second.Next != "" {
		t.Errorf("%v then %v", names(first.Items), names(second.Items))
	}
	if a := l.do("GET", "/v1/tenants/default/namespaces/empty/streams", l.owner, ""); !strings.Contains(a.body, `"items":[]`) {
		t.Errorf("an empty list: %s", a.body)
	}
	for _, bad := range []string{"?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?colour=red"} {
		l.do("GET", base+bad, l.owner, "").problem(http.StatusUnprocessableEntity, "bad_request")
	}
	for _, bad := range []string{"?cursor=!!", "?cursor=Li4v"} {
		l.do("GET", base+bad, l.owner, "").problem(http.StatusBadRequest, "bad_request")
	}
}

func TestConcurrentCreatesAgree(t *testing.T) {
	l := newLab(t)
	const callers = 8
	bodies := make([]string, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { bodies[i] = l.do("POST", base, l.owner, `{"name":"orders","shards":2}`).body })
	}
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] || !strings.Contains(b, `"id"`) {
			t.Fatalf("%s\n%s", b, bodies[0])
		}
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	l := newLab(t)
	l.api.router.Get("/v1/panic", func(http.ResponseWriter, *http.Request) { panic("marker-secret") })
	a := l.do("GET", "/v1/panic", l.owner, "", "X-Request-Id", "my-id.1")
	if p := a.problem(http.StatusInternalServerError, "internal"); p.RequestID != "my-id.1" || strings.Contains(a.body, "marker") {
		t.Errorf("%s", a.body)
	}
	if !strings.Contains(l.log.String(), "my-id.1") || !strings.Contains(l.log.String(), "marker-secret") {
		t.Error("the log does not have it")
	}
}

func TestStoreFailuresKeepTheirReasonInside(t *testing.T) {
	l := newLab(t)
	if err := l.store.Close(); err != nil {
		t.Fatal(err)
	}
	l.do("GET", base, l.owner, "").problem(http.StatusServiceUnavailable, "shutting_down")
	var f *failure
	if err := l.api.fail(t.Context(), errors.New("open /secret/path")); !errors.As(err, &f) || f.doc.Code != "internal" || strings.Contains(f.doc.Detail, "secret") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(l.log.String(), "/secret/path") {
		t.Error("the log does not have the reason")
	}
}
