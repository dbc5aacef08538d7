// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

func TestCacheCommands(t *testing.T) {
	const path = "/v1/tenants/default/namespaces/default/caches"
	const there = "cache default/default/sessions is there: 1 shard, ack quorum, fsync always, storage disk, the newest of each key, for 30m unless it says otherwise\n"
	tests := []struct{ args, sent, out string }{
		{"create sessions --shards 4 --ttl 30m", "POST " + path + ` {"name":"sessions","shards":4,"ttl":"30m"}`, there},
		{"add sessions --max-keys 10000 --fsync never -o raw", "POST " + path + ` {"fsync":"never","max_keys":10000,"name":"sessions"}`, "sessions\n"},
		{"create sessions --keep all -o raw", "POST " + path + ` {"keep":"all","name":"sessions"}`, "sessions\n"},
		{"create sessions --max-age 1d -o raw", "POST " + path + ` {"max_age":"1d","name":"sessions"}`, "sessions\n"}, // the server's to refuse
		{"list -o raw", "GET " + path + " ", "sessions\n"},
		{"ls acme/shop -o raw", "GET /v1/tenants/acme/namespaces/shop/caches ", "sessions\n"},
		{"info shop/sessions -o raw", "GET /v1/tenants/default/namespaces/shop/caches/sessions ", "sessions\n"},
		{"update sessions --ttl 0s -o raw", "PATCH " + path + `/sessions {"ttl":"0s"}`, "sessions\n"},
		{"rm sessions -o raw", "DELETE " + path + "/sessions ", "sessions\n"},
		{"delete sessions", "DELETE " + path + "/sessions ", "cache default/default/sessions is deleted, with all of its records\n"},
	}
	for _, test := range tests {
		var plane planeStub
		got := planeShell(t, &plane).run(t.Context(), append([]string{"cache"}, strings.Fields(test.args)...)...)
		if got.code != 0 || got.out != test.out || got.err != "" {
			t.Errorf("%s: %+v", test.args, got)
		}
		if len(plane.bodies) == 0 || plane.bodies[0] != test.sent {
			t.Errorf("%s: sent %q, want %q", test.args, plane.bodies, test.sent)
		}
	}
}

func TestCacheInWords(t *testing.T) {
	for args, want := range map[string][]string{
		"info sessions": {"cache default/default/sessions", "keep newest", "max keys 10000000 a shard", "ttl 30m"},
		"list":          {"sessions 1 quorum always disk newest 10000000 30m"},
	} {
		got := planeShell(t, &planeStub{}).run(t.Context(), append([]string{"cache"}, strings.Fields(args)...)...)
		words := strings.Join(strings.Fields(got.out), " ")
		for _, w := range want {
			if got.code != 0 || !strings.Contains(words, w) {
				t.Errorf("%s: %+v, want %q", args, got, w)
			}
		}
		for _, no := range []string{"max age", "max bytes", "no limit", "on full"} {
			if strings.Contains(got.out, no) {
				t.Errorf("%s shows %q, which means nothing here: %s", args, no, got.out)
			}
		}
	}
}

func TestCacheFailures(t *testing.T) {
	tests := []struct {
		args    string
		problem *code.Error
		exit    int
		says    string
	}{
		{"info sessions", code.New(code.NotFound, "nothing of that name"), 5, "margay cache create sessions"},
		{"create sessions", code.New(code.AlreadyExists, "differs"), 4, "certainly not done"},
		{"create sessions --replicas 3", nil, 4, "use --replicas 1"},
		{"update sessions", nil, 2, "nothing to change"},
		{"create NO", nil, 2, control.NameRule},
		{"create sessions --max-keys many", nil, 2, "max-keys"},
		{"create sessions --ttl 30", nil, 2, "ttl"},
		{"list a/b/c", nil, 2, "NAMESPACE"},
	}
	for _, test := range tests {
		got := planeShell(t, &planeStub{problem: test.problem}).run(t.Context(), append([]string{"cache"}, strings.Fields(test.args)...)...)
		if got.code != test.exit || got.out != "" || !strings.Contains(got.err, test.says) {
			t.Errorf("%s: %+v, want exit %d and %q", test.args, got, test.exit, test.says)
		}
	}
}

// Who asks for a cache as a stream, or for anything as what it is not, is told which commands know it.
func TestTheOtherPresetIsNamed(t *testing.T) {
	for _, pair := range [][2]string{{"stream", "cache"}, {"cache", "queue"}, {"queue", "stream"}} {
		preset, other := pair[0], pair[1]
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/"+other+"s/") {
				_ = json.NewEncoder(w).Encode(control.LogDocument{Name: "it"})
				return
			}
			w.Header().Set("Content-Type", control.ProblemType)
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(control.NewProblem(code.New(code.NotFound, "none"), "r1"))
		}))
		for _, args := range []string{"info it", "update it --fsync never", "delete it"} {
			got := shell{}.run(t.Context(), append([]string{preset, "--address", server.URL, "--token", "x"}, strings.Fields(args)...)...)
			if got.code != 5 || !strings.Contains(got.err, "`margay "+other+"`") || strings.Contains(got.err, "create") {
				t.Errorf("%s %s: %+v", preset, args, got)
			}
		}
		server.Close()
	}
}
