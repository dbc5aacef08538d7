// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"margay.dev/cmd/internal/cli"
	"margay.dev/cmd/internal/output"
)

// shell runs command lines the way a script does, with an environment and files of its own.
type shell struct {
	env map[string]string
	in  string
}

func (s shell) environ() []string {
	var all []string
	for name, value := range s.env {
		all = append(all, name+"="+value)
	}
	return all
}

type result struct {
	code     int
	out, err string
}

func (s shell) run(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	code := cli.Main(ctx, cli.Process{
		Args:    args,
		Getenv:  func(name string) string { return s.env[name] },
		Environ: s.environ,
		Version: "1.2.3",
		Streams: output.Streams{In: strings.NewReader(s.in), Out: &out, Err: &errs},
	})
	return result{code, out.String(), errs.String()}
}

func TestVersion(t *testing.T) {
	var sh shell
	if got := sh.run(t.Context(), "version", "-o", "raw"); got.code != 0 || got.out != "1.2.3\n" || got.err != "" {
		t.Errorf("raw: %+v", got)
	}
	got := sh.run(t.Context(), "version", "--output", "json")
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Version != "1.2.3" || v.Go == "" {
		t.Errorf("json: %+v, %v", got, err)
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range []string{
		"nonsense", "--nonsense", "version extra", "version --output yaml", "version --timeout x", "version --timeout -1s",
		"stream nonsense", "stream --nonsense", "pub", "sub", "sub a b", "stream create", "log nonsense", "context nonsense",
		"config nonsense", "config check extra", "config print --set nonsense", "debug nonsense", "debug log-level loud",
	} {
		got := shell{}.run(t.Context(), strings.Fields(args)...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, "error:") || !strings.Contains(got.err, "do:") {
			t.Errorf("margay %s: %+v", args, got)
		}
	}
}

func TestMisuseSuggests(t *testing.T) {
	if got := (shell{}).run(t.Context(), "verson"); !strings.Contains(got.err, "margay version") {
		t.Errorf("no suggestion in %q", got.err)
	}
}

func TestFlagsStandAboveTheEnvironment(t *testing.T) {
	sh := shell{env: map[string]string{"MARGAY_OUTPUT": "raw"}}
	if got := sh.run(t.Context(), "version"); got.out != "1.2.3\n" {
		t.Errorf("environment ignored: %+v", got)
	}
	if got := sh.run(t.Context(), "version", "-o", "json"); !strings.HasPrefix(got.out, "{") {
		t.Errorf("flag ignored: %+v", got)
	}
	sh.env["MARGAY_OUTPUT"] = "yaml"
	if got := sh.run(t.Context(), "version"); got.code != 2 || !strings.Contains(got.err, "MARGAY_OUTPUT") {
		t.Errorf("bad environment: %+v", got)
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	for _, args := range []string{"", "-h", "--help", "stream", "stream -h", "pub --help", "help sub", "completion bash"} {
		got := shell{}.run(t.Context(), strings.Fields(args)...)
		if got.code != 0 || got.out == "" || got.err != "" {
			t.Errorf("margay %s: %+v", args, got)
		}
	}
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"__complete stre":                     "stream",
		"__complete version --output ":        "json",
		"__complete pub orders --ack ":        "quorum",
		"__complete serve --log-format ":      "json",
		"__complete debug log-level ":         "warn",
		"__complete sub orders --from ":       "earliest",
		"__complete stream create a --fsync ": "interval",
	} {
		got := shell{}.run(t.Context(), strings.Split(args, " ")...)
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("margay %s: %+v, want %s", args, got, want)
		}
	}
	var plane planeStub
	if got := planeShell(t, &plane).run(t.Context(), "__complete", "pub", ""); !strings.Contains(got.out, "orders") {
		t.Errorf("streams are not offered: %+v", got)
	}
	for _, command := range []string{"put", "get", "del", "incr", "touch", "watch"} {
		if got := planeShell(t, &plane).run(t.Context(), "__complete", command, ""); !strings.Contains(got.out, "sessions") {
			t.Errorf("%s: caches are not offered: %+v", command, got)
		}
	}
	for _, command := range []string{"push", "consume", "group list", "group pause", "deadletter list", "queue peek", "queue cancel"} {
		got := planeShell(t, &plane).run(t.Context(), append(append([]string{"__complete"}, strings.Fields(command)...), "")...)
		if !strings.Contains(got.out, "emails") {
			t.Errorf("%s: queues are not offered: %+v", command, got)
		}
	}
	// A cluster that is away offers nothing, and is not waited for.
	if got := (shell{env: map[string]string{"MARGAY_ADDRESS": "127.0.0.1:1"}}).run(t.Context(), "__complete", "pub", ""); got.code != 0 || strings.Contains(got.out, "orders") {
		t.Errorf("nobody there: %+v", got)
	}
}
