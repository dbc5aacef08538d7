// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// The repository itself must pass, so that `go test` says so too.
func TestRepository(t *testing.T) {
	tree, err := readTree(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tree.check() {
		if !f.warning {
			t.Error(f)
		}
	}
}

const spdx = "// SPDX-License-Identifier: Apache-2.0\n\n"

// Each case is a small tree; want lists a part of each finding, in order.
func TestChecks(t *testing.T) {
	guarantees := func(rows ...string) string {
		return "# Guarantees\n\n| id | promise | where it stops | tests |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	}
	readme := func(rows ...string) string {
		return "| capability | status | held by |\n|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	}
	cases := map[string]struct {
		check func(*tree) []finding
		files map[string]string
		want  []string
	}{
		"links that lead somewhere": {checkLinks, map[string]string{
			"README.md": "# Top\n[a](docs/a.md#the-one-idea) [b](docs) [c](#top) [d](https://example.org/x#y) ![e](docs/p.png)\n" +
				"`[not](a-link)`\n```\n[nor](this)\n```\n[ref]: docs/a.md#the-one-idea-1\n",
			"docs/a.md": "## The *one* idea\n[up](../README.md)\n## The `one` idea\n<a id=\"x\"></a>[x](#x)\n", "docs/p.png": "",
		}, nil},
		"links that do not": {checkLinks, map[string]string{
			"README.md": "[a](gone.md)\n[b](docs/a.md#nothing)\n[c](/docs/a.md)\n[d]: ../up.md\n", "docs/a.md": "# A\n",
		}, []string{"README.md:1: link gone.md", "README.md:2: link docs/a.md#nothing", "README.md:3: link /docs", "README.md:4: link ../up.md"}},
		"snippets": {checkSnippets, map[string]string{
			"a.md": "```go\npackage p\n\nvar x int\n```\n```go\nfunc f() {}\n```\n```go\nx := f()\n_ = x\n```\n```go\nx := := 1\n```\n```console\n$ x := :=\n```\n",
		}, []string{"a.md:14: Go snippet"}},
		"promises with tests": {checkPromises, map[string]string{
			"docs/guarantees.md": guarantees(
				"| S1 | one | here | `a: TestOne`, `a/b_test.go: TestTwo/with a name` |",
				"| S2 | two | not promised yet | |"),
			"a/a_test.go": "package a\n\nfunc TestOne(t *testing.T) {}\n",
			"a/b_test.go": "package a\n\nfunc TestTwo(t *testing.T) {}\n",
			"README.md":   readme("| log | available | S1 |", "| queue | planned | S2 |", "| cli | partial: no colors | `a: TestTwo` |"),
		}, nil},
		"promises without": {checkPromises, map[string]string{
			"docs/guarantees.md": guarantees(
				"| S1 | one | here | |", "| S1 | again | not promised yet | |", "| S3 | three | here | `a: TestGone`, `b: TestOne` |"),
			"a/a_test.go": "package a\n\nfunc TestOne(t *testing.T) {}\n",
		}, []string{"S1 is promised and names no test", "S1 stands here twice", "S3 names a: TestGone", "S3 names b: TestOne"}},
		"no page of promises": {checkPromises, map[string]string{}, []string{"docs/guarantees.md: is not there"}},
		"capabilities that claim too much": {checkPromises, map[string]string{
			"docs/guarantees.md": guarantees("| S2 | two | not promised yet | |"),
			"README.md": readme("| queue | available | S2 |", "| cache | available | |", "| log | soon | |",
				"| cli | partial | `a: TestGone` |"),
		}, []string{"queue: is called available", "cache: is called available", `log: status is available, partial or planned, not "soon"`, "cli: names a: TestGone"}},
		"imports along the arrows": {checkArrows, map[string]string{
			"client/c.go":         "package client\nimport (\n\"net\"\n\"margay.dev/wire/batch\"\n\"margay.dev/client/internal/x\"\n)\n",
			"storage/s.go":        "package storage\nimport \"margay.dev/wire/batch\"\n",
			"wire/session/s.go":   "package session\nimport (\n\"net\"\n\"github.com/quic-go/quic-go\"\n\"margay.dev/wire\"\n)\n",
			"broker/x_test.go":    "package broker\nimport \"github.com/quic-go/quic-go\"\n",
			"broker/shard/s.go":   "package shard\nimport \"margay.dev/wire/batch\"\n",
			"cmd/margay/demo.go":  "package main\nimport \"margay.dev/examples/data\"\n",
			"examples/a/main.go":  "package main\nimport \"margay.dev/client\"\n",
			"cluster/bubble/b.go": "package bubble\nimport \"github.com/quic-go/quic-go/testutils/simnet\"\n",
		}, nil},
		"imports against them": {checkArrows, map[string]string{
			"broker/b.go":       "package broker\nimport \"margay.dev/client\"\n",
			"broker/b_test.go":  "package broker\nimport \"margay.dev/cluster/margaytest\"\n",
			"broker/q.go":       "package broker\nimport \"github.com/quic-go/quic-go/qlog\"\n",
			"broker/shard/s.go": "package shard\nimport (\n\"sync\"\n\"os/exec\"\n\"margay.dev/storage\"\n)\n",
			"client/c.go":       "package client\nimport \"margay.dev/storage/vfs\"\n",
			"cmd/x.go":          "package cmd\nimport \"margay.dev/examples/other\"\n",
			"newdir/n.go":       "package newdir\nimport \"margay.dev/wire\"\n",
			"router/r.go":       "package router\nimport \"margay.dev/wire\"\n",
			"storage/s.go":      "package storage\nimport \"margay.dev/wire/code\"\n",
			"wire/w.go":         "package wire\nimport \"os\"\n",
		}, []string{
			"broker/b.go:2", "broker/b_test.go:2", "broker/q.go:2", "broker/shard/s.go:3", "broker/shard/s.go:4",
			"broker/shard/s.go:5", "client/c.go:2", "cmd/x.go:2", "newdir/n.go:2", "router/r.go:2", "storage/s.go:2", "wire/w.go:2",
		}},
		"paths of one machine": {checkWords, map[string]string{
			"a.md": "see /" + "work/notes\nthe network/" + "work/x\nhttps://example.org/" + "work/x\n",
		}, []string{"a.md:1: names"}},
		"source": {checkSource, map[string]string{
			"a/a.go": spdx + "// Package a does.\npackage a\n", "a/b.go": spdx + "package a\n",
			"b/b.go":      spdx + "package b\n\nvar _ = os.Getenv(\"X\")\n",
			"c/c.go":      spdx + "// Package c is long.\npackage c\n" + strings.Repeat("\n", 600),
			"d/d.go":      spdx + "// Package d is long.\npackage d\n\n// Long: one table.\n" + strings.Repeat("\n", 600),
			"e/e_test.go": spdx + "package e\n", "cmd/m.go": "// Command m.\npackage main\nvar _ = os.Getenv(\"X\")\n",
		}, []string{"b: the package has no comment", "b/b.go:5: warning: reads the environment", "c/c.go: warning: has 604 lines"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := tc.check(newTree(tc.files))
			var got []string
			for _, f := range found {
				got = append(got, f.String())
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if len(got) != len(tc.want) {
				t.Fatalf("found %d, want %d:\n%s", len(got), len(tc.want), strings.Join(got, "\n"))
			}
			for _, want := range tc.want {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, want) }) {
					t.Errorf("no finding says %q:\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}
