// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestContextRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts", "local.yaml")
	c := &Context{
		Name: "local", Addresses: []string{"127.0.0.1:7420"}, HTTP: "http://127.0.0.1:7421",
		CA: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", APIKey: "mgk_secret", Tenant: "default", Namespace: "default",
	}
	for range 2 { // the second replaces
		if err := SaveContext(path, c); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadContext(path)
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Fatalf("%+v, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestContextFailuresSayWhat(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ body, say string }{
		"empty":         {"", "empty"},
		"unknown field": {"addresses: [a:1]\ncolour: red\n", "colour"},
		"no address":    {"name: x\n", "neither"},
		"secret quoted": {"addresses: mgk_topsecretvalue\n", "mgk_..."},
		"oversized":     {strings.Repeat("#", maxContextFile+1), "larger"},
	} {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(tc.body), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadContext(path)
		if err == nil || !strings.Contains(err.Error(), tc.say) || strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "topse") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadContext(filepath.Join(dir, "absent.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// AU-13: printing a context, however, shows no secret.
func TestContextPrintsNoSecret(t *testing.T) {
	c := Context{Name: "local", APIKey: "mgk_marker"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, v := range []any{c, &c} {
			if s := fmt.Sprintf(format, v); strings.Contains(s, "marker") {
				t.Errorf("%s: %s", format, s)
			}
		}
	}
}
