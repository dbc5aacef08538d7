// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

func TestQueueCommands(t *testing.T) {
	const path = "/v1/tenants/default/namespaces/default/queues"
	const there = "queue default/default/emails is there: 1 shard, ack quorum, fsync always, storage disk, kept until settled, at most 7d\n"
	tests := []struct{ args, sent, out string }{
		{"create emails --shards 4 --max-age 7d", "POST " + path + ` {"max_age":"7d","name":"emails","shards":4}`, there},
		{"add emails --fsync never -o raw", "POST " + path + ` {"fsync":"never","name":"emails"}`, "emails\n"},
		{"create emails --storage memory -o raw", "POST " + path + ` {"name":"emails","storage":"memory"}`, "emails\n"}, // the server's to refuse
		{"list -o raw", "GET " + path + " ", "emails\n"},
		{"ls acme/shop -o raw", "GET /v1/tenants/acme/namespaces/shop/queues ", "emails\n"},
		{"info shop/emails -o raw", "GET /v1/tenants/default/namespaces/shop/queues/emails ", "emails\n"},
		{"update emails --max-age 0s -o raw", "PATCH " + path + `/emails {"max_age":"0s"}`, "emails\n"},
		{"rm emails -o raw", "DELETE " + path + "/emails ", "emails\n"},
		{"delete emails", "DELETE " + path + "/emails ", "queue default/default/emails is deleted, with all of its records\n"},
	}
	for _, test := range tests {
		var plane planeStub
		got := planeShell(t, &plane).run(t.Context(), append([]string{"queue"}, strings.Fields(test.args)...)...)
		if got.code != 0 || got.out != test.out || got.err != "" {
			t.Errorf("%s: %+v", test.args, got)
		}
		if len(plane.bodies) == 0 || plane.bodies[0] != test.sent {
			t.Errorf("%s: sent %q, want %q", test.args, plane.bodies, test.sent)
		}
	}
}

func TestQueueInWords(t *testing.T) {
	for args, want := range map[string][]string{
		"info emails": {"queue default/default/emails", "keep unsettled", "max age 7d", "max bytes no limit", "on full refuse"},
		"list":        {"emails 1 quorum always disk unsettled 7d no limit"},
	} {
		got := planeShell(t, &planeStub{}).run(t.Context(), append([]string{"queue"}, strings.Fields(args)...)...)
		words := strings.Join(strings.Fields(got.out), " ")
		for _, w := range want {
			if got.code != 0 || !strings.Contains(words, w) {
				t.Errorf("%s: %+v, want %q", args, got, w)
			}
		}
		if strings.Contains(words, " ttl ") || strings.Contains(words, "max keys") {
			t.Errorf("%s shows what means nothing here: %s", args, got.out)
		}
	}
}

func TestQueueFailures(t *testing.T) {
	tests := []struct {
		args    string
		problem *code.Error
		exit    int
		says    string
	}{
		{"info emails", code.New(code.NotFound, "nothing of that name"), 5, "margay queue create emails"},
		{"create emails", code.New(code.AlreadyExists, "differs"), 4, "certainly not done"},
		{"create emails --replicas 3", nil, 4, "use --replicas 1"},
		{"update emails", nil, 2, "nothing to change"},
		{"create NO", nil, 2, control.NameRule},
		{"create emails --max-age 30", nil, 2, "max-age"},
		{"list a/b/c", nil, 2, "NAMESPACE"},
	}
	for _, test := range tests {
		got := planeShell(t, &planeStub{problem: test.problem}).run(t.Context(), append([]string{"queue"}, strings.Fields(test.args)...)...)
		if got.code != test.exit || got.out != "" || !strings.Contains(got.err, test.says) {
			t.Errorf("%s: %+v, want exit %d and %q", test.args, got, test.exit, test.says)
		}
	}
}
