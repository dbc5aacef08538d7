// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	steps, err := parse("# Title\n\n```sh\n$ not run\n```\n\n```console\n$ one\na\n\n$ two <<E\n> x\n> E\n> b\n\n```\ntext\n```console\n$ three &\n$ four --bad  # exits 2\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []step{
		{line: 8, command: "one", want: []string{"a"}},
		{line: 11, command: "two <<E\nx\nE\nb"},
		{line: 19, command: "three", background: true},
		{line: 20, command: "four --bad", exit: 2},
	}
	if len(steps) != len(want) {
		t.Fatalf("parse returned %d steps, want %d: %+v", len(steps), len(want), steps)
	}
	for i, s := range steps {
		w := want[i]
		if s.line != w.line || s.command != w.command || s.background != w.background || s.exit != w.exit ||
			strings.Join(s.want, "\n") != strings.Join(w.want, "\n") {
			t.Errorf("step %d = %+v, want %+v", i, s, w)
		}
	}
	for _, bad := range []string{"```console\noutput\n```\n", "```console\n$ x\n"} {
		if steps, err := parse(bad); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", bad, steps)
		}
	}
}

func TestMatches(t *testing.T) {
	cases := []struct {
		want, lines string
		exact       bool
		prefix      bool
	}{
		{"a", "a", true, true},
		{"a", "a\nb", false, true},
		{"a", "ab", false, false},
		{"a\nb", "a", false, false},
		{"", "a", false, true},
		{"offset <offset> at <time>", "offset 12 at 10:00:01", true, true},
		{"offset <offset>", "offset 1 2", false, false},
		{"in … s", "in 0.3 s", true, true},
		{"(x) …", "(x) any thing", true, true},
		{"(x) …", "xx any thing", false, false},
		{"…\nlast", "first\nsecond\nlast", true, true},
		{"…\nlast", "first\nlast\nmore", false, true},
		{"first\n…", "first", true, true},
		{"<literal>", "<literal>", true, true},
	}
	for _, tc := range cases {
		want, lines := split(tc.want), split(tc.lines)
		if got := matches(want, lines, false); got != tc.exact {
			t.Errorf("matches(%q, %q) = %v, want %v", want, lines, got, tc.exact)
		}
		if got := matches(want, lines, true); got != tc.prefix {
			t.Errorf("matches(%q, %q) as a prefix = %v, want %v", want, lines, got, tc.prefix)
		}
	}
}

// runSteps runs a page in a shell of its own, without the node that runPage adds.
func runSteps(t *testing.T, text string) error {
	t.Helper()
	steps, err := parse("```console\n" + text + "\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	sh, err := newShell(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sh.stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range steps {
		if err := sh.run(t.Context(), s); err != nil {
			return err
		}
	}
	return nil
}

func TestRunComparesOutputAndExitCode(t *testing.T) {
	t.Setenv("MARGAY_TOKEN", "leaks")
	good := map[string]string{
		"output and errors":      "$ echo a; echo b >&2\na\nb",
		"an empty directory":     "$ ls -A",
		"files stay":             "$ echo x > f\n$ cat f\nx",
		"its own home":           "$ ls -A $HOME; echo ${XDG_CONFIG_HOME#$HOME} ${MARGAY_TOKEN-none}\n/.config none",
		"an announced exit code": "$ echo no; exit 4  # exits 4\nno",
		"a background command":   "$ echo up; read -t 60 < <(sleep 60) &\nup\n$ echo next\nnext",
	}
	for name, text := range good {
		t.Run(name, func(t *testing.T) {
			if err := runSteps(t, text); err != nil {
				t.Error(err)
			}
		})
	}
	bad := map[string]struct{ text, want string }{
		"another output":                 {"$ echo a\nb", "2: $ echo a\n  - b\n  + a\n"},
		"output that nobody announced":   {"$ echo a", "  + a\n"},
		"an exit code":                   {"$ exit 3", "exit code 3, want 0"},
		"a background command that ends": {"$ echo a; exit 1 &\nb", "  - b\n  + a\n"},
	}
	for name, tc := range bad {
		t.Run(name, func(t *testing.T) {
			if err := runSteps(t, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestStopEndsWhatAPageLeftRunning(t *testing.T) {
	sh, err := newShell(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := step{command: "echo up; sleep 100 | cat", background: true, want: []string{"up"}}
	if err := sh.run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := sh.stop(); err != nil {
		t.Error(err)
	}
	if p := sh.started[0]; p.cmd.ProcessState == nil {
		t.Error("the command was not waited for")
	}
}

func TestStopReportsABackgroundCommandThatDied(t *testing.T) {
	sh, err := newShell(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := step{command: "echo up; until test -e go; do :; done; exit 3", background: true, want: []string{"up"}}
	for _, s := range []step{s, {command: "touch go"}} {
		if err := sh.run(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	<-sh.started[0].ended
	if err := sh.stop(); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("stop returned %v, want the exit code in it", err)
	}
}

func TestPagesFindsMarkdownOnce(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.md", "a.md", "c.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := pages([]string{dir, filepath.Join(dir, "a.md"), filepath.Join(dir, "not-there")})
	if err != nil || len(names) != 2 || !strings.HasSuffix(names[0], "a.md") {
		t.Errorf("pages = %v, %v, want a.md and b.md", names, err)
	}
}
