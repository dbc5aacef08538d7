// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// generous is a bound that no machine meets by being slow.
const generous = 2 * time.Minute

func repository(t *testing.T) string {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// The list cannot rot: every mutation still applies to the code as it is, yields Go, and names a test that is there.
func TestEveryMutationApplies(t *testing.T) {
	root := repository(t)
	seen := map[string]bool{}
	texts := map[string]string{}
	for _, m := range mutations() {
		if m.name == "" || m.why == "" || seen[m.name] || strings.ContainsAny(m.name, " ,") {
			t.Errorf("mutation %q: want a name of its own without spaces, and the reason for the rule", m.name)
		}
		seen[m.name] = true
		clear(texts)
		for _, e := range m.edits() {
			text, known := texts[e.file]
			if !known {
				b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
				if err != nil {
					t.Errorf("%s: %v", m.name, err)
					continue
				}
				text = string(b)
			}
			is, err := e.mutate(text)
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			texts[e.file] = is
		}
		for file, text := range texts {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if c := m.caught; c.seeds == 0 && !hasTest(t, filepath.Join(root, filepath.FromSlash(c.folder)), c.test) {
			t.Errorf("%s: %s has no test %q", m.name, c.folder, c.test)
		}
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
				return true
			}
		}
	}
	return false
}

// Each way in which a mutation can end is told apart, on a small module: only red by the named test is a catch.
func TestVerdicts(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module small\n\ngo 1.26.0\n",
		"add.go":       "package small\n\nfunc Add(a, b int) int { return a + b }\n",
		"add_test.go":  "package small\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"no\")\n\t}\n}\n",
		"mute_test.go": "package small\n\nimport \"testing\"\n\nfunc TestMute(*testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	s := &scratch{dir: root}
	m := func(old, is, test string) mutation {
		return mutation{name: "m", why: "w", file: "add.go", old: old, new: is, caught: by(".", test)}
	}
	for _, c := range []struct {
		m    mutation
		want verdict
	}{
		{m("a + b", "a - b", "TestAdd"), caught},
		{m("a + b", "b + a", "TestAdd"), survived},
		{m("a + b", "a - b", "TestMute"), survived},
		{m("a + b", "a +", "TestAdd"), broken},
		{m("a * b", "a - b", "TestAdd"), stale},
		{m("a", "b", "TestAdd"), stale},
		{m("return a + b", "for {\n\t}", "TestAdd"), hung},
	} {
		o := options{timeout: generous}
		if c.want == hung {
			o.timeout = 2 * time.Second
		}
		if r := s.try(t.Context(), &c.m, o); r.verdict != c.want {
			t.Errorf("%q for %q: %s, want %s\n%s", c.m.new, c.m.old, r.verdict, c.want, r.detail)
		}
		if b, err := os.ReadFile(filepath.Join(root, "add.go")); err != nil || !bytes.Contains(b, []byte("return a + b")) {
			t.Fatalf("the copy was not mended: %s, %v", b, err)
		}
	}
	if err := s.baseline(t.Context(), []mutation{m("a", "b", "TestAdd"), m("a", "b", "TestMute")}, options{timeout: generous}); err != nil {
		t.Errorf("green tests are called red: %v", err)
	}
	if err := s.baseline(t.Context(), []mutation{m("a", "b", "TestNone")}, options{timeout: generous}); err == nil {
		t.Error("a test that is not there is taken for green")
	}
}

func TestReportFailsOnSurvivors(t *testing.T) {
	var out bytes.Buffer
	if err := report(&out, []result{{name: "a", verdict: caught}, {name: "b", verdict: hung}}); err != nil {
		t.Error(err)
	}
	for _, v := range []verdict{survived, stale, broken, odd} {
		if err := report(&out, []result{{name: "a", verdict: caught}, {name: "b", verdict: v, detail: "why"}}); err == nil {
			t.Errorf("%s is no failure", v)
		}
	}
}

// The tree itself is never touched, whatever a mutation does to the copy.
func TestTheTreeIsCopied(t *testing.T) {
	root := repository(t)
	s, err := newScratch(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.remove() }()
	m := &mutations()[0]
	name := filepath.FromSlash(m.file)
	before, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	mend, err := s.apply(m)
	if err != nil {
		t.Fatal(err)
	}
	in := func(dir string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if bytes.Equal(in(s.dir), before) || !bytes.Equal(in(root), before) {
		t.Error("the mutation is not in the copy, or not in the copy alone")
	}
	if err := mend(); err != nil || !bytes.Equal(in(s.dir), before) {
		t.Errorf("the copy is not mended: %v", err)
	}
	if _, err := s.apply(&mutation{file: "go.work", old: "nothing like it", new: "x"}); !errors.Is(err, errStale) {
		t.Errorf("a text that is not there: %v", err)
	}
}
