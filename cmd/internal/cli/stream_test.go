// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// planeStub answers as the control plane does, for one stream and one cache, and keeps the bodies it was sent.
type planeStub struct {
	bodies  []string
	problem *code.Error
}

func (p *planeStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body strings.Builder
	if r.Body != nil {
		_, _ = body.WriteString(readAll(r))
	}
	p.bodies = append(p.bodies, r.Method+" "+r.URL.Path+" "+body.String())
	e := p.problem
	if r.Header.Get("Authorization") != "Bearer secret" {
		e = code.New(code.Unauthenticated, "who are you")
	}
	if e != nil {
		w.Header().Set("Content-Type", control.ProblemType)
		w.WriteHeader(control.HTTPStatus(e.Code))
		_ = json.NewEncoder(w).Encode(control.NewProblem(e, "r1"))
		return
	}
	one := control.NewStream(&control.Log{Tenant: "default", Namespace: "default", Name: "orders", Shards: 4, Ack: "quorum", Fsync: "always", Storage: "disk"})
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/caches"):
		_ = json.NewEncoder(w).Encode(control.CacheList{Items: []control.Cache{control.NewCache(sessions())}})
	case strings.Contains(r.URL.Path, "/caches"):
		_ = json.NewEncoder(w).Encode(control.NewCache(sessions()))
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/queues"):
		_ = json.NewEncoder(w).Encode(control.QueueList{Items: []control.Queue{control.NewQueue(emails())}})
	case strings.Contains(r.URL.Path, "/queues"):
		_ = json.NewEncoder(w).Encode(control.NewQueue(emails()))
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/streams"):
		list := control.StreamList{Items: []control.Stream{one}}
		if r.URL.Query().Get("cursor") == "" {
			list.Next = "2"
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		_ = json.NewEncoder(w).Encode(one)
	}
}

func sessions() *control.Log {
	l := &control.Log{Name: "sessions", Preset: control.PresetCache, TTL: 30 * time.Minute}
	l.SetDefaults()
	return l
}

func emails() *control.Log {
	l := &control.Log{Name: "emails", Preset: control.PresetQueue, MaxAge: 7 * 24 * time.Hour}
	l.SetDefaults()
	return l
}

func readAll(r *http.Request) string {
	var v any
	if json.NewDecoder(r.Body).Decode(&v) != nil {
		return ""
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func planeShell(t *testing.T, p *planeStub) shell {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return shell{env: map[string]string{"MARGAY_ADDRESS": server.URL, "MARGAY_TOKEN": "secret"}}
}

func TestStreamCommands(t *testing.T) {
	const path = "/v1/tenants/default/namespaces/default/streams"
	tests := []struct{ args, sent, out string }{
		{"create orders --shards 4 --max-age 7d -o raw", "POST " + path + ` {"max_age":"7d","name":"orders","shards":4}`, "orders\n"},
		{"add orders --max-bytes 10GiB -o raw", "POST " + path + ` {"max_bytes":10737418240,"name":"orders"}`, "orders\n"},
		{"create orders --shards 0 -o raw", "POST " + path + ` {"name":"orders","shards":0}`, "orders\n"}, // said, so sent
		{"create orders --keep newest --max-keys 5 --ttl 1d -o raw", "POST " + path + ` {"keep":"newest","max_keys":5,"name":"orders","ttl":"1d"}`, "orders\n"},
		{"update orders --keep newest --max-age 0s -o raw", "PATCH " + path + `/orders {"keep":"newest","max_age":"0s"}`, "orders\n"},
		{"list -o raw", "GET " + path + " ", "orders\norders\n"},
		{"ls shop -o raw", "GET /v1/tenants/default/namespaces/shop/streams ", "orders\norders\n"},
		{"ls acme/shop -o raw", "GET /v1/tenants/acme/namespaces/shop/streams ", "orders\norders\n"},
		{"info shop/orders -o raw", "GET /v1/tenants/default/namespaces/shop/streams/orders ", "orders\n"},
		{"update orders --fsync never -o raw", "PATCH " + path + `/orders {"fsync":"never"}`, "orders\n"},
		{"rm orders -o raw", "DELETE " + path + "/orders ", "orders\n"},
		{"delete orders", "DELETE " + path + "/orders ", "stream default/default/orders is deleted, with all of its records\n"},
	}
	for _, test := range tests {
		var plane planeStub
		got := planeShell(t, &plane).run(t.Context(), append([]string{"stream"}, strings.Fields(test.args)...)...)
		if got.code != 0 || got.out != test.out || got.err != "" {
			t.Errorf("%s: %+v", test.args, got)
		}
		if len(plane.bodies) == 0 || plane.bodies[0] != test.sent {
			t.Errorf("%s: sent %q, want %q", test.args, plane.bodies, test.sent)
		}
	}
}

func TestStreamJSONIsOneObjectALine(t *testing.T) {
	var plane planeStub
	got := planeShell(t, &plane).run(t.Context(), "stream", "list", "-o", "json")
	rows := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	if len(rows) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, row := range rows {
		var s control.Stream
		if err := json.Unmarshal([]byte(row), &s); err != nil || s.Name != "orders" || s.Shards != 4 {
			t.Errorf("%s: %v", row, err)
		}
	}
}

func TestStreamFailures(t *testing.T) {
	tests := []struct {
		args    string
		problem *code.Error
		exit    int
		says    string
	}{
		{"info orders", code.New(code.NotFound, "stream orders"), 5, "nothing was changed"},
		{"create orders", code.New(code.AlreadyExists, "differs"), 4, "certainly not done"},
		{"create orders", code.New(code.Internal, "oops"), 1, "may or may not"},
		{"create orders --replicas 3", nil, 4, "use --replicas 1"},
		{"update orders", nil, 2, "nothing to change"},
		{"create NO", nil, 2, control.NameRule},
		{"create orders --max-bytes 1x", nil, 2, "10GiB"},
		{"list a/b/c", nil, 2, "NAMESPACE"},
	}
	for _, test := range tests {
		got := planeShell(t, &planeStub{problem: test.problem}).run(t.Context(), append([]string{"stream"}, strings.Fields(test.args)...)...)
		if got.code != test.exit || got.out != "" || !strings.Contains(got.err, test.says) {
			t.Errorf("%s: %+v, want exit %d and %q", test.args, got, test.exit, test.says)
		}
	}
	if got := planeShell(t, &planeStub{}).run(t.Context(), "stream", "list", "--token", "wrong"); got.code != 4 {
		t.Errorf("a wrong token: %+v, want exit 4", got)
	}
}

func TestNobodyThere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, args := range []string{"stream list", "stream create orders"} {
		got := shell{}.run(t.Context(), append(strings.Fields(args), "--address", server.URL, "--token", "x")...)
		if got.code != 3 || !strings.Contains(got.err, "margay serve") {
			t.Errorf("%s: %+v, want exit 3 and a remedy", args, got)
		}
	}
}
