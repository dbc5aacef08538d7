// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestFindReturnsEachTargetOnce(t *testing.T) {
	const one = "package a\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc Fuzzy(s string) {}\n\nfunc FuzzTwo(f *testing.F) {\n}\n"
	found, err := find(fstest.MapFS{
		"a/a_test.go":          {Data: []byte(one)},
		"a/a.go":               {Data: []byte("package a\n\nfunc FuzzNot(f *testing.F) {}\n")},
		"b/testdata/x_test.go": {Data: []byte(one)},
		".git/x_test.go":       {Data: []byte(one)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []target{{"a", "FuzzOne"}, {"a", "FuzzTwo"}}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
