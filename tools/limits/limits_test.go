// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"os"
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

// constant evaluates the constant of that name in a file; false when the name stands there for something else.
func constant(file, name string) (*big.Int, bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, false, err
	}
	consts, seen := map[string]ast.Expr{}, false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			seen = seen || n.Name == name
		case *ast.GenDecl:
			if n.Tok != token.CONST {
				break
			}
			for _, s := range n.Specs {
				spec := s.(*ast.ValueSpec)
				for i, id := range spec.Names {
					if i < len(spec.Values) {
						consts[id.Name] = spec.Values[i]
					}
				}
			}
		}
		return true
	})
	if !seen {
		return nil, false, fmt.Errorf("%s has nothing that is called %s", file, name)
	}
	e, ok := consts[name]
	if !ok {
		return nil, false, nil
	}
	v, err := eval(e, consts)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %s: %w", file, name, err)
	}
	return v, true, nil
}

// eval knows what the constants of limits are made of: numbers, shifts, products and units of time.
func eval(e ast.Expr, consts map[string]ast.Expr) (*big.Int, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return eval(e.X, consts)
	case *ast.BasicLit:
		v, ok := new(big.Int).SetString(e.Value, 0)
		if !ok {
			return nil, fmt.Errorf("%s is no whole number", e.Value)
		}
		return v, nil
	case *ast.Ident:
		if v, ok := consts[e.Name]; ok {
			return eval(v, consts)
		}
	case *ast.SelectorExpr:
		known := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		if d, ok := known[e.Sel.Name]; ok {
			return big.NewInt(int64(d)), nil
		}
	case *ast.BinaryExpr:
		x, err := eval(e.X, consts)
		if err != nil {
			return nil, err
		}
		y, err := eval(e.Y, consts)
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
