// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"margay.dev/broker"
	"margay.dev/cluster/node"
	"margay.dev/wire/session"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "margay.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// env is an environment in which the data directory can be found.
func env(kv ...string) []string { return append([]string{"HOME=/srv/user"}, kv...) }

func load(t *testing.T, in Input) *Result {
	t.Helper()
	if in.Environ == nil {
		in.Environ = env()
	}
	r, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Result) at(t *testing.T, path string) Setting {
	t.Helper()
	i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Path == path })
	if i < 0 {
		t.Fatalf("there is no setting %s", path)
	}
	return r.Settings[i]
}

func TestEachPlaceStandsAboveTheOneBefore(t *testing.T) {
	name := write(t, "log:\n  level: warn\n  format: json\nlimits: {connections: 7, lanes_per_connection: 16}\nshutdown: &x\n  grace: 2s\n")
	r := load(t, Input{
		File: name, Environ: env("MARGAY_LIMITS_CONNECTIONS=8", "MARGAY_LOG_LEVEL=error", "MARGAY_STORAGE_FLUSH_SLOTS="),
		Flags: []Flag{{"--log-level", "log.level", "debug"}, {"--set", "session.idle", "1m"}, {"--set", "session.idle", "2m"}},
	})
	for _, want := range []Setting{
		{Path: "data", Value: "/srv/user/.local/share/margay", From: "default"},
		{Path: "listen", Value: "127.0.0.1:7420", From: "default"},
		{Path: "log.level", Value: "debug", From: "--log-level", Live: true},
		{Path: "log.format", Value: "json", From: name, Line: 3},
		{Path: "limits.connections", Value: "8", From: "MARGAY_LIMITS_CONNECTIONS"},
		{Path: "limits.lanes_per_connection", Value: "16", From: name, Line: 4},
		{Path: "shutdown.grace", Value: "2s", From: name, Line: 6},
		{Path: "session.idle", Value: "2m", From: "--set"},
		{Path: "storage.flush_slots", Value: "16", From: "default"},
		{Path: "limits.in_flight", Value: "128MiB", From: "default"},
	} {
		if got := r.at(t, want.Path); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if r.Config.Limits.Connections != 8 || r.Config.Log.Level != Level(slog.LevelDebug) || r.File != name {
		t.Errorf("%+v", r.Config)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	name := write(t, `lisen: 127.0.0.1:1
log:
  level: loud
  format: xml
limits:
  connections: many
  connections: 5
  lanes_per_connection: 1
session: [1]
storage:
  disk_reserve: 1.5GiB
  flush_slots:
  sealed_files: {a: 1}
5: x
`)
	_, err := Load(Input{
		File: name, Environ: env("MARGAY_HTTP=nowhere", "MARGAY_SHUTDOWN_GRACE=-1s"),
		Flags: []Flag{{"--listen", "listen", "127.0.0.1:70000"}, {"--set", "limits.conections", "4"}, {"--set", "limits", "4"}},
	})
	faults, ok := errors.AsType[FaultsError](err)
	if !ok {
		t.Fatalf("got %v, want faults", err)
	}
	var got []string
	for _, f := range faults {
		got = append(got, strings.ReplaceAll(f.String(), name, "F"))
	}
	want := []string{
		`F:1: lisen: there is no such key; is listen meant?`,
		`F:3: log.level: "loud": want debug, info, warn or error`,
		`F:6: limits.connections: "many": want a whole number`,
		`F:7: limits.connections: stands in line 6 already`,
		`F:9: session: want keys with values below it`,
		`F:11: storage.disk_reserve: size "1.5GiB": not a whole number of bytes, for example 1048576, 64MiB or 10GiB`,
		`F:12: storage.flush_slots: has no value; remove the key to get its default`,
		`F:13: storage.sealed_files: want one value`,
		`F:14: 5: there is no such key`,
		`MARGAY_HTTP: http: "nowhere": want HOST:PORT`,
		`MARGAY_SHUTDOWN_GRACE: shutdown.grace: duration "-1s": must not be negative, for example 30s, 12h or 7d`,
		`--listen: listen: "127.0.0.1:70000": want a port from 0 (any free one) to 65535`,
		`--set: limits.conections: there is no such key; is limits.connections meant?`,
		`--set: limits: there is no such key`,
		`F:4: log.format: "xml": want text or json`,
		`F:8: limits.lanes_per_connection: 1 is below 8`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range got {
		if text := strings.ReplaceAll(err.Error(), name, "F"); !strings.Contains(text, "16 faults") || !strings.Contains(text, line) {
			t.Errorf("the error does not tell %q:\n%s", line, text)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"a: [":                               ":1: no YAML: ",
		"log:\n\tlevel: info\n":              ":2: no YAML: ",
		"listen: \"127.0.0.1:0\"\n---\na: b": "more than one document",
		"- listen":                           ":1: want keys with values",
		"just words":                         ":1: want keys with values",
		"log: &a\n  level: *a\n":             "log.level: want one value",
		"<<: {listen: 1:1}":                  "<<: there is no such key",
		"? [a]\n: b":                         "there is no such key",
		"#" + strings.Repeat("x", maxFile):   "larger than",
	} {
		name := write(t, text)
		if _, err := Load(Input{File: name, Environ: env()}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	missing := filepath.Join(t.TempDir(), "gone.yaml")
	if _, err := Load(Input{Environ: env(FileVariable + "=" + missing)}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "log:\n", "null"} {
		if _, err := Load(Input{File: write(t, text), Environ: env()}); err != nil {
			t.Errorf("%q says nothing, and is refused: %v", text, err)
		}
	}
}

// What holds only between values names them all, with the place of each.
func TestFaultsBetweenValues(t *testing.T) {
	for text, want := range map[string][]string{
		"session: {keepalive: 20s}":                                   {"session.keepalive is 20s (F:1)", "session.idle is 30s (default)"},
		"session: {lane_window: 9MiB}":                                {"session.max_lane_window is 8MiB"},
		"session: {connection_window: 17MiB}":                         {"session.max_connection_window is 16MiB"},
		"limits: {batch: 2MiB}":                                       {"limits.record is 8MiB"},
		"limits: {frame: 1MiB, record: 1KiB, batch: 1MiB}":            {"limits.batch is 1MiB", "limits.header_bytes is 16KiB"},
		"limits: {in_flight: 32MiB}":                                  {"limits.in_flight_per_connection is 64MiB"},
		"limits: {connections: 10, connections_per_address: 11}":      {"limits.connections_per_address is 11"},
		"limits: {connections: 0}\nsession: {lane_window: 9MiB}":      {"limits.connections: 0 is below 1"},
		"limits: {connections: 1000001}\nsession: {keepalive: 20s}\n": {"limits.connections: 1000001 is above 1000000"},
	} {
		name := write(t, text)
		_, err := Load(Input{File: name, Environ: env()})
		for _, w := range want {
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), name, "F"), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
	}
}

// A variable that means nothing is told and not refused: an orchestrator puts some into every process.
func TestUnknownVariables(t *testing.T) {
	r := load(t, Input{
		Environ: env("MARGAY_SERVICE_HOST=10.0.0.1", "MARGAY_PORT_7421_TCP=tcp://10.0.0.1:7421", "MARGAY_LISTN=1:1", "MARGAY_TOKEN=secret", "OTHER=x"),
		Others:  []string{"MARGAY_TOKEN"},
	})
	want := []string{"MARGAY_LISTN (is MARGAY_LISTEN meant?)", "MARGAY_PORT_7421_TCP", "MARGAY_SERVICE_HOST"}
	if !slices.Equal(r.Unknown, want) {
		t.Errorf("got %q, want %q", r.Unknown, want)
	}
}

func TestWithoutAHomeTheDataDirectoryMustBeNamed(t *testing.T) {
	if _, err := Load(Input{Environ: []string{"X=y"}}); err == nil || !strings.Contains(err.Error(), "data: ") {
		t.Errorf("got %v", err)
	}
	r := load(t, Input{Environ: []string{"MARGAY_DATA=somewhere"}})
	if !filepath.IsAbs(r.Config.Data) || filepath.Base(r.Config.Data) != "somewhere" {
		t.Errorf("data is %q", r.Config.Data)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	var c struct {
		Key  string `yaml:"key" secret:"true"`
		Port int    `yaml:"port" secret:"true" default:"1"`
	}
	l := newLoader(&c, Input{Environ: []string{"MARGAY_KEY=hunter2", "MARGAY_PORT=hunter2"}})
	l.read()
	if c.Key != "hunter2" || len(l.faults) != 1 {
		t.Fatalf("%+v, %v", c, l.faults)
	}
	shown := l.faults.Error()
	for _, f := range l.fields {
		shown += f.text()
	}
	if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "***") {
		t.Errorf("it shows %s", shown)
	}
}

func TestChanges(t *testing.T) {
	name := write(t, "log: {level: warn}\n")
	old := load(t, Input{File: name})
	if err := os.WriteFile(name, []byte("# more\nlog: {level: debug}\nlimits: {connections: 5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Changes(old, load(t, Input{File: name}))
	want := []Change{{"log.level", "warn", "debug", true}, {"limits.connections", "10000", "5", false}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Changes(old, old); len(got) > 0 {
		t.Errorf("nothing changed, and yet %+v", got)
	}
}

// Every value reaches the node: a setting that is read and used nowhere would be worse than none.
func TestEveryValueReachesTheNode(t *testing.T) {
	elsewhere := map[string]bool{"log.level": true, "log.format": true} // the logger's, which the command makes
	c := &Config{}
	all := fields(tree(reflect.ValueOf(c).Elem(), ""))
	base := node.Config{}
	c.Apply(&base)
	for _, f := range all {
		was := reflect.New(f.value.Type()).Elem()
		was.Set(f.value)
		switch f.value.Kind() {
		case reflect.String:
			f.value.SetString(f.value.String() + "1")
		case reflect.Bool:
			f.value.SetBool(!f.value.Bool())
		default:
			f.value.SetInt(f.value.Int() + 1)
		}
		got := node.Config{}
		c.Apply(&got)
		if same := reflect.DeepEqual(got, base); same != elsewhere[f.path] {
			t.Errorf("%s changed, and the node's configuration is the same: %v", f.path, same)
		}
		f.value.Set(was)
	}
}

// The tags are what everything follows from.
func TestTags(t *testing.T) {
	for _, f := range fields(tree(reflect.ValueOf(&Config{}).Elem(), "")) {
		if f.tag.Get("doc") == "" || f.tag.Get("default") == "" && f.tag.Get("unset") == "" {
			t.Errorf("%s has no doc, or no default", f.path)
		}
		if err := f.within(); err != nil {
			t.Errorf("the default of %s: %v", f.path, err)
		}
		for _, name := range []string{"min", "max"} {
			if text := f.tag.Get(name); text != "" {
				if err := set(reflect.New(f.value.Type()).Elem(), text); err != nil {
					t.Errorf("%s of %s: %v", name, f.path, err)
				}
			}
		}
	}
}

// What the page and `config print` call a default is what the parts take when they are told nothing.
func TestDefaultsAreThoseOfTheParts(t *testing.T) {
	var n node.Config
	load(t, Input{}).Config.Apply(&n)
	want := session.Config{}.WithDefaults()
	want.ALPN, want.Logger, want.Stats = "", nil, nil // not for configuration
	want.MaxConns, want.MaxSockets = 0, 0             // the node's, by its limits and by what it may have open
	if !reflect.DeepEqual(n.Session, want) {
		t.Errorf("the session is %+v, its defaults %+v", n.Session, want)
	}
	none := broker.Limits{}
	if err := n.Limits.Validate(); err != nil || n.Limits.WithDefaults() != none.WithDefaults() {
		t.Errorf("the limits are %+v (%v), their defaults %+v", n.Limits, err, none.WithDefaults())
	}
}

// What is no fault here is none for the broker: a node that passed `config check` starts.
func TestWhatIsAcceptedIsAcceptedByTheBroker(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for range 20_000 {
		c := &Config{}
		for _, f := range fields(tree(reflect.ValueOf(c).Elem(), "")) {
			if !strings.HasPrefix(f.path, "limits.") || rng.IntN(3) > 0 {
				continue // at its default
			}
			low, high := f.limit("min"), f.limit("max")
			if high == 0 {
				high = 1 << 40
			}
			v := low << rng.IntN(64)
			f.value.SetInt(max(low, min(high, v, low+rng.Int64N(high-low+1))))
		}
		faults := 0
		c.check(func(string, []any, ...string) { faults++ })
		var n node.Config
		c.Apply(&n)
		if faults > 0 {
			continue
		}
		accepted++
		if err := n.Limits.Validate(); err != nil {
			t.Fatalf("%+v: %v", c.Limits, err)
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d configurations had no fault: this test looks at nothing", accepted)
	}
}

func (f *field) limit(name string) int64 {
	b := reflect.New(f.value.Type()).Elem()
	if t := f.tag.Get(name); t == "" || set(b, t) != nil {
		return 0
	}
	return b.Int()
}
