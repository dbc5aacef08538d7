// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the file: one that is larger is another file.
const maxFile = 1 << 20

// readFile takes the values of a file. The document is walked by hand: the library's decoder would stop at the first
// fault of each kind, and does not say where a value stood.
func (l *loader) readFile(name string) {
	fail := func(line int, format string, args ...any) {
		l.faults = append(l.faults, Fault{From: name, Line: line, Message: fmt.Sprintf(format, args...)})
	}
	b, err := read(name)
	if err != nil {
		fail(0, "%v", err)
		return
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // an empty file says nothing
	case err != nil:
		line, what := syntax(err)
		fail(line, "%s", what)
		return
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		fail(second.Line, "the file holds more than one document")
	}
	if len(doc.Content) > 0 {
		l.group(name, doc.Content[0], "", l.parts)
	}
}

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("the file is larger than %d bytes", maxFile)
	}
	return b, err
}

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax takes the library's complaint apart.
func syntax(err error) (line int, what string) {
	m := syntaxError.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, err.Error()
	}
	line, _ = strconv.Atoi(m[1]) // 0 when it names none
	return line, "no YAML: " + m[2]
}

// group takes what stands below a key. Nothing below it is nothing said.
func (l *loader) group(name string, at *yaml.Node, path string, parts []*part) {
	at = resolve(at)
	fail := func(n *yaml.Node, path, message string) {
		l.faults = append(l.faults, Fault{Path: path, From: name, Line: n.Line, Message: message})
	}
	if at.Kind == yaml.ScalarNode && at.Tag == "!!null" {
		return
	}
	if at.Kind != yaml.MappingNode {
		fail(at, path, "want keys with values below it")
		return
	}
	keys := make([]string, len(parts))
	for i, p := range parts {
		keys[i] = p.key
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := at.Content[i], resolve(at.Content[i+1])
		here := key.Value
		if path != "" {
			here = path + "." + here
		}
		if line, twice := seen[key.Value]; twice {
			fail(key, here, fmt.Sprintf("stands in line %d already", line))
			continue
		}
		seen[key.Value] = key.Line
		p := find(parts, key)
		switch {
		case p == nil:
			fail(key, here, unknownKey(key.Value, keys))
		case p.field == nil:
			l.group(name, value, here, p.group)
		case value.Kind != yaml.ScalarNode:
			fail(value, here, "want one value")
		case value.Tag == "!!null":
			fail(key, here, "has no value; remove the key to get its default")
		default:
			l.assign(p.field, value.Value, name, value.Line)
		}
	}
}

func find(parts []*part, key *yaml.Node) *part {
	if key.Kind != yaml.ScalarNode {
		return nil
	}
	for _, p := range parts {
		if p.key == key.Value {
			return p
		}
	}
	return nil
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
