// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "margay.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConfigPrintSaysWhereEachValueComesFrom(t *testing.T) {
	name := configFile(t, "log:\n  level: warn\nlimits: {connections: 7}\n")
	sh := shell{env: map[string]string{"HOME": "/srv/user", "MARGAY_HTTP": "127.0.0.1:1", "MARGAY_OUTPUT": "text"}}
	got := sh.run(t.Context(), "config", "print", "--config", name, "--listen", "127.0.0.1:2", "--set", "session.idle=1m")
	if got.code != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	lines := map[string][]string{}
	for line := range strings.Lines(got.out) {
		if f := strings.Fields(line); len(f) == 3 {
			lines[f[0]] = f[1:]
		}
	}
	for path, want := range map[string][2]string{
		"data": {"/srv/user/.local/share/margay", "default"}, "listen": {"127.0.0.1:2", "--listen"}, "http": {"127.0.0.1:1", "MARGAY_HTTP"},
		"log.level": {"warn", name + ":2"}, "limits.connections": {"7", name + ":3"}, "session.idle": {"1m", "--set"}, "session.keepalive": {"3s", "default"},
	} {
		if l := lines[path]; len(l) != 2 || l[0] != want[0] || l[1] != want[1] {
			t.Errorf("%s: %q, want %q", path, l, want)
		}
	}
	object := sh.run(t.Context(), "config", "print", "--config", name, "-o", "json")
	var first, level map[string]any
	for line := range strings.Lines(object.out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = v
		}
		if v["path"] == "log.level" {
			level = v
		}
	}
	if first["path"] != "data" || level["from"] != name || level["line"] != 2.0 || level["live"] != true {
		t.Errorf("json: %v, %v", first, level)
	}
}

func TestConfigCheck(t *testing.T) {
	bad := configFile(t, "log: {level: loud}\nlimits:\n  conections: 7\n")
	good := configFile(t, "log: {level: warn}\n")
	sh := shell{env: map[string]string{"HOME": "/srv/user", "MARGAY_CONFIG": bad, "MARGAY_LISTEN": "nowhere", "MARGAY_TOKEN": "t", "MARGAY_PORT": "tcp://10.0.0.1"}}
	got := sh.run(t.Context(), "config", "check")
	if got.code != 2 || got.out != "" {
		t.Fatalf("%+v", got)
	}
	faults := []string{bad + ":1: log.level: ", bad + ":3: limits.conections: there is no such key; is connections meant?", "MARGAY_LISTEN: listen: "}
	for _, want := range faults {
		if !strings.Contains(got.err, want) {
			t.Errorf("it does not say %q:\n%s", want, got.err)
		}
	}
	if got := sh.run(t.Context(), "serve"); got.code != 2 || !strings.Contains(got.err, faults[0]) || !strings.Contains(got.err, "nothing was tried") {
		t.Errorf("serve: %+v", got)
	}
	object := sh.run(t.Context(), "config", "check", "-o", "json")
	var report struct {
		Exit    int
		Details []struct {
			Path, From, Message string
			Line                int
		}
	}
	if err := json.Unmarshal([]byte(object.err), &report); err != nil || report.Exit != 2 || len(report.Details) != 3 || report.Details[1].Line != 3 {
		t.Errorf("json: %+v, %v", object, err)
	}
	delete(sh.env, "MARGAY_LISTEN")
	got = sh.run(t.Context(), "config", "check", "--config", good) // the flag stands above the variable
	if got.code != 0 || !strings.Contains(got.out, "no faults: 1 settings") || got.err != "not settings, and ignored: MARGAY_PORT\n" {
		t.Errorf("good: %+v", got)
	}
}
