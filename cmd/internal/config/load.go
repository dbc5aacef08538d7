// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"margay.dev/cmd/internal/contexts"
)

const (
	envPrefix = "MARGAY_"
	// FileVariable names the file when no flag does.
	FileVariable = "MARGAY_CONFIG"
)

// Input is where values come from.
type Input struct {
	File    string   // given as a flag; empty: what FileVariable names, or none
	Environ []string // as os.Environ gives it
	Flags   []Flag   // in the order in which they count
	// Others are variables with our prefix that other parts of the command line read.
	Others []string
}

// Flag is a value from the command line.
type Flag struct {
	Name  string // as it was given: "--listen", "--set"
	Path  string
	Value string
}

// Setting is one value, as it is shown.
type Setting struct {
	Path  string `json:"path"`
	Value string `json:"value"`
	From  string `json:"from"`           // "default", a file, a variable, a flag
	Line  int    `json:"line,omitempty"` // in the file
	Live  bool   `json:"live,omitempty"` // a reload changes it
}

// Result is a configuration without faults.
type Result struct {
	Config   *Config
	File     string // "" when there is none
	Settings []Setting
	// Unknown are variables with our prefix that mean nothing. They are no fault: some systems put variables of their own
	// making into every process.
	Unknown []string
}

// Fault is one thing that is wrong.
type Fault struct {
	Path    string `json:"path,omitempty"`
	From    string `json:"from"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// String is "file:line: path: message".
func (f Fault) String() string {
	s := f.From + ": "
	if f.Line > 0 {
		s = fmt.Sprintf("%s:%d: ", f.From, f.Line)
	}
	if f.Path != "" {
		s += f.Path + ": "
	}
	return s + f.Message
}

// FaultsError is all that is wrong.
type FaultsError []Fault

func (f FaultsError) Error() string {
	if len(f) == 1 {
		return "configuration: " + f[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d faults", len(f))
	for _, one := range f {
		b.WriteString("\n  " + one.String())
	}
	return b.String()
}

// Load reads the configuration. An error is a FaultsError.
func Load(in Input) (*Result, error) {
	c := &Config{}
	l := newLoader(c, in)
	l.read()
	l.data(c)
	if len(l.faults) == 0 { // what does not hold between values that are wrong says nothing
		c.check(l.between)
	}
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	r := &Result{Config: c, File: l.in.File, Unknown: l.unknown}
	for _, f := range l.fields {
		r.Settings = append(r.Settings, Setting{Path: f.path, Value: f.text(), From: f.origin, Line: f.line, Live: f.live()})
	}
	return r, nil
}

// loader is one reading.
type loader struct {
	in      Input
	parts   []*part
	fields  []*field
	env     map[string]string
	unknown []string
	faults  FaultsError
}

func newLoader(root any, in Input) *loader {
	l := &loader{in: in, parts: tree(reflect.ValueOf(root).Elem(), ""), env: map[string]string{}}
	l.fields = fields(l.parts)
	for _, kv := range in.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			l.env[name] = value
		}
	}
	if l.in.File == "" {
		l.in.File = l.env[FileVariable]
	}
	return l
}

func (l *loader) read() {
	if l.in.File != "" {
		l.readFile(l.in.File)
	}
	l.readEnvironment()
	l.readFlags()
	for _, f := range l.fields {
		if l.faulty(f) {
			continue
		}
		if err := f.within(); err != nil {
			l.fault(f, f.shown(err))
		}
	}
}

// faulty says whether a value could not be read, so that what it is now is not what was asked for.
func (l *loader) faulty(f *field) bool {
	return slices.ContainsFunc(l.faults, func(x Fault) bool { return x.Path == f.path })
}

// assign gives a field a value from a place that stands above those before it.
func (l *loader) assign(f *field, text, origin string, line int) {
	f.origin, f.line = origin, line
	if err := set(f.value, text); err != nil {
		l.fault(f, f.shown(err))
	}
}

// fault is one of a field, where its value came from.
func (l *loader) fault(f *field, message string) {
	l.faults = append(l.faults, Fault{Path: f.path, From: f.origin, Line: f.line, Message: message})
}

// between is a fault of several values together.
func (l *loader) between(format string, args []any, paths ...string) {
	var from []string
	for _, p := range paths {
		f := l.named(p)
		where := f.origin
		if f.line > 0 {
			where = fmt.Sprintf("%s:%d", where, f.line)
		}
		from = append(from, fmt.Sprintf("%s is %s (%s)", p, f.text(), where))
	}
	l.faults = append(l.faults, Fault{From: "together", Message: fmt.Sprintf(format, args...) + ": " + strings.Join(from, ", ")})
}

func (l *loader) named(path string) *field {
	for _, f := range l.fields {
		if f.path == path {
			return f
		}
	}
	return nil
}

// readEnvironment takes the variables of fields. An empty one counts as not set, as shells cannot easily unset one for a
// single command.
func (l *loader) readEnvironment() {
	known := append([]string{FileVariable}, l.in.Others...)
	for _, f := range l.fields {
		name := f.variable()
		known = append(known, name)
		if text := l.env[name]; text != "" {
			l.assign(f, text, name, 0)
		}
	}
	for name := range l.env {
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			if near := nearest(name, known); near != "" {
				name += " (is " + near + " meant?)"
			}
			l.unknown = append(l.unknown, name)
		}
	}
	slices.Sort(l.unknown)
}

func (l *loader) readFlags() {
	for _, given := range l.in.Flags {
		f := l.named(given.Path)
		if f == nil {
			l.faults = append(l.faults, Fault{Path: given.Path, From: given.Name, Message: l.unknownPath(given.Path)})
			continue
		}
		l.assign(f, given.Value, given.Name, 0)
	}
}

func (l *loader) unknownPath(path string) string {
	var names []string
	for _, f := range l.fields {
		names = append(names, f.path)
	}
	return unknownKey(path, names)
}

func unknownKey(key string, names []string) string {
	if near := nearest(key, names); near != "" {
		return "there is no such key; is " + near + " meant?"
	}
	return "there is no such key"
}

// data fills in where the node keeps its data, by the XDG rules, and makes the path one that does not depend on where
// the process stands.
func (l *loader) data(c *Config) {
	f := l.named("data")
	var err error
	if c.Data == "" {
		f.origin, f.line = Default, 0
		c.Data, err = contexts.DataDir(func(name string) string { return l.env[name] })
	}
	if err == nil {
		c.Data, err = filepath.Abs(c.Data)
	}
	if err != nil {
		l.fault(f, err.Error())
	}
}

// Change is a value that another reading has otherwise.
type Change struct {
	Path, Old, New string
	Live           bool
}

// Changes compares two readings.
func Changes(from, to *Result) []Change {
	var out []Change
	for i, s := range to.Settings { // both have all settings, in one order
		if old := from.Settings[i]; old.Value != s.Value {
			out = append(out, Change{Path: s.Path, Old: old.Value, New: s.Value, Live: s.Live})
		}
	}
	return out
}
