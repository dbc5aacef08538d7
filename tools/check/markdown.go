// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// page is a Markdown file taken apart.
type page struct {
	prose    []string // lines by number - 1, empty where a fence is
	fences   []fence
	anchors  map[string]bool
	headings []heading
}

type fence struct {
	language string
	line     int // of the first line inside
	text     string
}

type heading struct {
	line int
	text string
}

var (
	fenceLine   = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([A-Za-z0-9_+-]*)")
	headingLine = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	anchorTag   = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	inlineLink  = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	linkTarget  = regexp.MustCompile(`^\s*\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)`)
	codeSpan    = regexp.MustCompile("(``+|`)(.*?[^`])(``+|`)")
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

func parsePage(text string) page {
	p := page{anchors: make(map[string]bool)}
	var open string // the marker of the fence we are in
	var inside []string
	var f fence
	for i, line := range strings.Split(text, "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open, inside = m[1], nil
			f = fence{language: m[2], line: i + 2}
			line = ""
		case open != "" && m != nil && strings.HasPrefix(m[1], open) && m[2] == "":
			f.text = strings.Join(inside, "\n")
			p.fences = append(p.fences, f)
			open, line = "", ""
		case open != "":
			inside = append(inside, line)
			line = ""
		}
		p.prose = append(p.prose, line)
		if h := headingLine.FindStringSubmatch(line); h != nil {
			p.headings = append(p.headings, heading{i + 1, h[1]})
			p.anchors[p.freeAnchor(slug(h[1]))] = true
		}
		for _, a := range anchorTag.FindAllStringSubmatch(line, -1) {
			p.anchors[a[1]] = true
		}
	}
	return p
}

// freeAnchor numbers headings of the same text, as the pages that render them do.
func (p *page) freeAnchor(s string) string {
	if !p.anchors[s] {
		return s
	}
	for n := 1; ; n++ {
		if numbered := fmt.Sprintf("%s-%d", s, n); !p.anchors[numbered] {
			return numbered
		}
	}
}

// slug turns a heading into its anchor.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// checkLinks demands that each relative link of each page leads to a file, and its anchor to a heading.
func checkLinks(t *tree) []finding {
	var found []finding
	pages := make(map[string]page)
	for _, name := range t.named(".md") {
		pages[name] = parsePage(t.files[name])
	}
	for _, name := range t.named(".md") {
		for i, line := range pages[name].prose {
			line = codeSpan.ReplaceAllString(line, "")
			links := inlineLink.FindAllStringSubmatch(line, -1)
			links = append(links, linkTarget.FindAllStringSubmatch(line, -1)...)
			for _, l := range links {
				if problem := t.checkLink(pages, name, l[1]); problem != "" {
					found = append(found, finding{path: name, line: i + 1, message: problem})
				}
			}
		}
	}
	return found
}

func (t *tree) checkLink(pages map[string]page, from, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return "" // not ours to promise
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if strings.HasPrefix(file, "/") {
		return fmt.Sprintf("link %s: write it relative to this file", link)
	}
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	if _, isFile := t.files[target]; !isFile && !t.dirs[target] {
		return fmt.Sprintf("link %s: %s is not there", link, target)
	}
	if anchor == "" {
		return ""
	}
	if p, ok := pages[target]; !ok || !p.anchors[anchor] {
		return fmt.Sprintf("link %s: %s has no heading #%s", link, target, anchor)
	}
	return ""
}

// checkSnippets demands that Go code in pages is Go: a whole file, declarations, or statements. Examples that must also
// compile are Example functions in a package; pages show what those hold.
func checkSnippets(t *tree) []finding {
	var found []finding
	for _, name := range t.named(".md") {
		for _, f := range parsePage(t.files[name]).fences {
			if f.language != "go" {
				continue
			}
			if err := parseSnippet(f.text); err != nil {
				found = append(found, finding{path: name, line: f.line, message: fmt.Sprintf("Go snippet: %v", err)})
			}
		}
	}
	return found
}

func parseSnippet(text string) error {
	fset := token.NewFileSet()
	_, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err == nil {
		return nil
	}
	if strings.HasPrefix(strings.TrimSpace(text), "package ") {
		return err
	}
	if _, err := parser.ParseFile(fset, "", "package p;"+text, parser.SkipObjectResolution); err == nil {
		return nil
	}
	_, err = parser.ParseFile(fset, "", "package p;func _() {"+text+"\n}", parser.SkipObjectResolution)
	return err
}
