// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const page = "../../docs/reference/limits.md"

// row is "| what | value | [file](link) `Name` |".
var row = regexp.MustCompile("^\\| (.+) \\| ([0-9][0-9,]*)(?: ([A-Za-z]+))? \\| \\[[^]]+\\]\\(([^)]+)\\) `([A-Za-z]+)` \\|$")

var units = map[string]int64{
	"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour),
}

// Every row that names a constant says its value, and every name is still in the file.
func TestPageSaysWhatTheCodeSays(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| what ") || strings.HasPrefix(line, "| --- ") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("line %d is no row of this page: %s", i+1, line)
			continue
		}
		unit, ok := units[m[3]]
		n, err := strconv.ParseInt(strings.ReplaceAll(m[2], ",", ""), 10, 64)
		if !ok || err != nil {
			t.Errorf("line %d: %s %s is no value", i+1, m[2], m[3])
			continue
		}
		got, isConst, err := constant(filepath.Join(filepath.Dir(page), m[4]), m[5])
		switch {
		case err != nil:
			t.Errorf("line %d: %v", i+1, err)
		case isConst && got.Cmp(big.NewInt(n*unit)) != 0:
			t.Errorf("line %d: the page says %s %s (%d), %s is %s", i+1, m[2], m[3], n*unit, m[5], got)
		case isConst:
			compared++
		}
	}
	if compared < 40 {
		t.Errorf("only %d rows were compared: this test no longer reads the page", compared)
	}
}

// scope is what the names of one file stand for: its constants, and the folders of our packages that it imports.
type scope struct {
	consts  map[string]ast.Expr
	imports map[string]string
}

const module = "margay.dev/"

func read(file string) (*ast.File, *scope, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	s := &scope{consts: map[string]ast.Expr{}, imports: map[string]string{}}
	for _, i := range f.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(p, module) {
			s.imports[path.Base(p)] = filepath.Join("..", "..", strings.TrimPrefix(p, module))
		}
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, d := range g.Specs {
			spec := d.(*ast.ValueSpec)
			for i, id := range spec.Names {
				if i < len(spec.Values) {
					s.consts[id.Name] = spec.Values[i]
				}
			}
		}
	}
	return f, s, nil
}

// constant evaluates the constant of that name in a file; false when the name stands there for something else.
func constant(file, name string) (*big.Int, bool, error) {
	f, s, err := read(file)
	if err != nil {
		return nil, false, err
	}
	seen := false
	ast.Inspect(f, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		seen = seen || ok && id.Name == name
		return true
	})
	if !seen {
		return nil, false, fmt.Errorf("%s has nothing that is called %s", file, name)
	}
	e, ok := s.consts[name]
	if !ok {
		return nil, false, nil
	}
	v, err := s.eval(e)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %s: %w", file, name, err)
	}
	return v, true, nil
}

// elsewhere evaluates a constant of one of our packages.
func elsewhere(dir, name string) (*big.Int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		_, s, err := read(file)
		if err != nil {
			return nil, err
		}
		if e, ok := s.consts[name]; ok {
			return s.eval(e)
		}
	}
	return nil, fmt.Errorf("%s has no constant %s", dir, name)
}

// eval knows what the constants of limits are made of: numbers, shifts, products, units of time, and other constants.
func (s *scope) eval(e ast.Expr) (*big.Int, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.eval(e.X)
	case *ast.BasicLit:
		if v, ok := new(big.Int).SetString(e.Value, 0); ok {
			return v, nil
		}
	case *ast.Ident:
		if v, ok := s.consts[e.Name]; ok {
			return s.eval(v)
		}
	case *ast.SelectorExpr:
		known := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		if d, ok := known[e.Sel.Name]; ok {
			return big.NewInt(int64(d)), nil
		}
		if pkg, ok := e.X.(*ast.Ident); ok && s.imports[pkg.Name] != "" {
			return elsewhere(s.imports[pkg.Name], e.Sel.Name)
		}
	case *ast.BinaryExpr:
		x, err := s.eval(e.X)
		if err != nil {
			return nil, err
		}
		y, err := s.eval(e.Y)
		if err != nil {
			return nil, err
		}
		if e.Op == token.MUL {
			return x.Mul(x, y), nil
		}
		if e.Op == token.SHL {
			return x.Lsh(x, uint(y.Uint64())), nil
		}
	}
	return nil, fmt.Errorf("cannot evaluate %T", e)
}
