// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func appWith(t *testing.T, g globals, saved ...*control.Context) *app {
	t.Helper()
	home := t.TempDir()
	for _, c := range saved {
		if err := control.SaveContext(filepath.Join(home, "margay", "contexts", c.Name+".yaml"), c); err != nil {
			t.Fatal(err)
		}
	}
	if len(saved) > 0 {
		if err := os.WriteFile(filepath.Join(home, "margay", "current"), []byte(saved[0].Name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.timeout = defaultTimeout
	return &app{
		Process: Process{Getenv: func(name string) string { return map[string]string{"XDG_CONFIG_HOME": home}[name] }},
		Printer: output.NewPrinter(output.Text, output.Streams{}),
		global:  g,
	}
}

func TestTarget(t *testing.T) {
	local := &control.Context{Name: "local", Addresses: []string{"127.0.0.1:7500"}, HTTP: "http://127.0.0.1:7501", Namespace: "shop"}
	other := &control.Context{Name: "other", Addresses: []string{"b:1"}, HTTP: "https://b:2"}
	file := filepath.Join(t.TempDir(), "context.yaml")
	if err := control.SaveContext(file, other); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		flags     globals
		saved     []*control.Context
		addresses []string
		http      string
		exit      int
	}{
		{"the current context", globals{}, []*control.Context{local, other}, local.Addresses, local.HTTP, 0},
		{"a named one", globals{context: "other"}, []*control.Context{local, other}, other.Addresses, other.HTTP, 0},
		{"a file", globals{context: file}, nil, other.Addresses, other.HTTP, 0},
		{"an address alone", globals{address: "margay://127.0.0.1"}, nil, []string{"127.0.0.1:7420"}, "", 0},
		{"an IPv6 address", globals{address: "[::1]:7500"}, nil, []string{"[::1]:7500"}, "", 0},
		{"an IPv6 address without a port", globals{address: "::1"}, nil, []string{"[::1]:7420"}, "", 0},
		{"a remote address", globals{address: "broker.example"}, nil, []string{"broker.example:7420"}, "", 0},
		{"both planes", globals{address: "h:1,http://127.0.0.1:2"}, nil, []string{"h:1"}, "http://127.0.0.1:2", 0},
		{"the context's own address", globals{address: "127.0.0.1:7500"}, []*control.Context{local}, local.Addresses, local.HTTP, 0},
		{"the context's own address over TLS", globals{address: "margay+tls://127.0.0.1:7500"}, []*control.Context{local}, []string{"margay+tls://127.0.0.1:7500"}, local.HTTP, 0},
		{"two transports", globals{address: "margay+tls://h,l:2,margay://g:1,k"}, nil, []string{"margay+tls://h:7420", "margay+tls://l:2", "g:1", "k:7420"}, "", 0},
		{"no host over TLS", globals{address: "margay+tls://"}, nil, nil, "", exit.Usage},
		{"never the context's control plane for another broker", globals{address: "h:1"}, []*control.Context{local}, []string{"h:1"}, "", 0},
		{"nothing at all", globals{}, nil, nil, "", exit.Usage},
		{"a context that is not there", globals{context: "absent"}, []*control.Context{local}, nil, "", exit.NotThere},
		{"a file that is not there", globals{context: "/nowhere/context.yaml"}, nil, nil, "", exit.NotThere},
		{"no context's name", globals{context: "NO"}, nil, nil, "", exit.Usage},
		{"no address", globals{address: "ftp://x"}, nil, nil, "", exit.Usage},
		{"an empty address", globals{address: "a:1,"}, nil, nil, "", exit.Usage},
		{"no CA file", globals{address: "h:1", ca: "/nowhere"}, nil, nil, "", exit.Usage},
	}
	for _, test := range tests {
		got, err := appWith(t, test.flags, test.saved...).target()
		if exit.CodeOf(err, exit.Reads) != test.exit {
			t.Errorf("%s: %v, want exit code %d", test.name, err, test.exit)
		}
		if err == nil && (!slices.Equal(got.Addresses, test.addresses) || got.HTTP != test.http) {
			t.Errorf("%s: %v and %s, want %v and %s", test.name, got.Addresses, got.HTTP, test.addresses, test.http)
		}
	}
}

func TestFullName(t *testing.T) {
	tgt := &target{Context: control.Context{Tenant: "acme", Namespace: "shop"}}
	for in, want := range map[string][3]string{
		"orders": {"acme", "shop", "orders"}, "n/orders": {"acme", "n", "orders"}, "t/n/orders": {"t", "n", "orders"},
	} {
		tenant, namespace, name, err := tgt.fullName(in)
		if got := [3]string{tenant, namespace, name}; got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", in, got, err, want)
		}
	}
	if _, _, _, err := tgt.fullName("NO"); exit.CodeOf(err, exit.Reads) != exit.Usage {
		t.Errorf("a bad name: %v", err)
	}
}
