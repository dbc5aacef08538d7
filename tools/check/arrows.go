// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// arrow says what of ours the packages below a folder may import, beside what lies in the same folder. The longest
// folder that holds a package decides.
type arrow struct {
	folder string
	may    []string
}

// arrows is the import table: who meets whom, and where. ARCHITECTURE.md says why.
var arrows = []arrow{
	// level 0
	{"wire", nil},
	{"router", nil},
	{"storage", []string{"wire/batch"}},
	// level 1: never each other
	{"client", []string{"wire", "router"}},
	{"broker", []string{"wire", "router", "storage"}},
	{"broker/shard", []string{"wire/batch", "wire/code", "router", "storage/keyindex", "broker/group"}},
	{"broker/replica", []string{"wire/batch", "wire/code", "router"}},
	{"broker/group", []string{"wire/batch", "wire/code", "router"}},
	{"controlplane", []string{"wire", "router"}},
	{"console", []string{"wire"}},
	// level 2
	{"gateway", []string{"client", "wire"}},
	{"cluster", []string{"wire", "router", "storage", "client", "broker", "controlplane", "console", "gateway"}},
	{"cluster/history", nil},
	{"cluster/load", nil}, // the same for all systems; adapters meet it, it meets none
	{"cluster/load/margay", []string{"wire", "router", "client", "cluster"}},
	{"cluster/load/disk", []string{"wire/batch", "storage", "cluster/load"}},
	// level 3
	{"cmd", []string{
		"wire", "router", "storage", "client", "broker", "controlplane", "console", "gateway", "cluster", "examples/data",
	}},
	{"bench", []string{"wire", "router", "storage", "client", "broker", "controlplane", "cluster", "examples/data"}},
	{"examples", []string{"client", "cluster", "wire"}},
	{"examples/data", nil},
}

// ban says which packages of others the packages below some folders may not import, tests apart.
type ban struct {
	folders, except []string
	imports         []string // a trailing slash bans what lies below
	because         string
}

var bans = []ban{
	{
		folders: []string{"router", "broker/shard", "broker/replica", "broker/group"},
		imports: []string{"net", "net/", "os", "os/", "sync", "context"},
		because: "a core is stepped by one goroutine and does no I/O",
	},
	{
		folders: []string{"wire", "storage", "router"},
		except:  []string{"wire/session", "wire/control"},
		imports: []string{"net", "net/http"},
		because: "formats and logs know no sockets",
	},
	{
		folders: []string{"wire"},
		except:  []string{"wire/session", "wire/control", "wire/code"}, // code turns the errors of context and os into ours
		imports: []string{"os", "os/", "context"},
		because: "a format is bytes in, values out",
	},
	{
		folders: []string{""},
		except:  []string{"wire/session", "cluster/bubble", "bench"},
		imports: []string{"github.com/quic-go/quic-go", "github.com/quic-go/quic-go/"},
		because: "only wire/session speaks QUIC",
	},
}

const ours = "margay.dev/"

// checkArrows holds every import of every Go file to the two tables above.
func checkArrows(t *tree) []finding {
	var found []finding
	for _, name := range t.named(".go") {
		if inside(name, "tools") {
			continue // imported by nobody, imports nobody: outside the workspace
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, t.files[name], parser.ImportsOnly)
		if err != nil {
			found = append(found, finding{path: name, message: err.Error()})
			continue
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser accepted it, so the compiler will refuse it
			}
			if problem := checkImport(name, imported); problem != "" {
				found = append(found, finding{path: name, line: fset.Position(spec.Pos()).Line, message: problem})
			}
		}
	}
	return found
}

func checkImport(file, imported string) string {
	from := path.Dir(file)
	if to, ok := strings.CutPrefix(imported, ours); ok {
		return checkArrow(from, to)
	}
	if strings.HasSuffix(file, "_test.go") {
		return ""
	}
	for _, b := range bans {
		if b.bans(from, imported) {
			return fmt.Sprintf("imports %s: %s", imported, b.because)
		}
	}
	return ""
}

func checkArrow(from, to string) string {
	var a arrow
	for _, other := range arrows {
		if inside(from, other.folder) && len(other.folder) > len(a.folder) {
			a = other
		}
	}
	if a.folder == "" {
		return fmt.Sprintf("imports %s, and the import table of tools/check does not know %s", ours+to, from)
	}
	if inside(to, a.folder) || slices.ContainsFunc(a.may, func(m string) bool { return inside(to, m) }) {
		return ""
	}
	return fmt.Sprintf("imports %s: %s may import %s and itself only", ours+to, a.folder, strings.Join(a.may, ", "))
}

func (b ban) bans(from, imported string) bool {
	within := func(folder string) bool { return inside(from, folder) }
	if !slices.ContainsFunc(b.folders, within) || slices.ContainsFunc(b.except, within) {
		return false
	}
	return slices.ContainsFunc(b.imports, func(i string) bool {
		return imported == i || strings.HasSuffix(i, "/") && strings.HasPrefix(imported, i)
	})
}

// inside says whether a path is a folder or lies in it. Everything lies in the folder "".
func inside(name, folder string) bool {
	return folder == "" || name == folder || strings.HasPrefix(name, folder+"/")
}
