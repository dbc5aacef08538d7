// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/wire/control"
)

// What a newcomer does: start a node, paste the three lines it prints, stop it.
func TestServeOnAFreshDirectory(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	node.await(node.out, "sub hello")

	c, err := control.LoadContext(h.path(".local/share/margay/context.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	local, err := control.LoadContext(h.path(".config/margay/contexts/local.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if c.APIKey == "" || c.CA == "" || local.APIKey != c.APIKey || local.Addresses[0] != c.Addresses[0] {
		t.Errorf("contexts %v and %v", c, local)
	}
	said := node.out.String()
	for _, want := range []string{"margay://" + c.Addresses[0], c.HTTP, h.path(".config/margay/contexts/local.yaml")} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %s:\n%s", want, said)
		}
	}

	var last string
	pasted := 0
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		pasted++
		line = strings.TrimSpace(line)
		if strings.Contains(line, " sub ") {
			line += " --end"
		}
		sh := exec.CommandContext(t.Context(), "sh", "-c", line)
		sh.Env = h.env
		out, err := sh.CombinedOutput()
		if err != nil {
			t.Errorf("pasted %q: %v\n%s", line, err, out)
		}
		last = string(out)
	}
	if pasted != 3 || !strings.Contains(last, "hello, world") {
		t.Errorf("%d lines to paste, and the last says %q", pasted, last)
	}

	node.signal(syscall.SIGTERM)
	if code := node.exit(3 * time.Second); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
	if all := node.out.String() + node.err.String(); strings.Contains(all, c.APIKey) || strings.Contains(all, control.APIKeyPrefix) {
		t.Errorf("it shows its API key:\n%s", all)
	}
}

// Secrets lie in files: none of them may be anybody else's to read.
func TestServeKeepsItsFilesPrivate(t *testing.T) {
	h := newHome(t)
	h.serve()
	for _, dir := range []string{".local/share/margay", ".config/margay"} {
		err := filepath.WalkDir(h.path(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := string(b)
			secret := strings.Contains(text, control.APIKeyPrefix) || strings.Contains(text, "PRIVATE KEY") || strings.HasSuffix(path, ".key")
			if secret && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s holds a secret and has mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestServeAgain(t *testing.T) {
	h := newHome(t)
	first := h.serve()
	h.ok("stream", "create", "orders")
	before := h.ok("pub", "orders", "one", "-o", "json")
	first.signal(syscall.SIGKILL)
	<-first.done

	second := h.serve()
	if strings.Contains(second.out.String(), "Paste") {
		t.Error("a directory that is not fresh is introduced again")
	}
	if got := h.ok("sub", "orders", "--end", "-o", "raw"); got != "one\n" {
		t.Errorf("after kill -9 the record is %q (acked as %s)", got, before)
	}
	second.signal(syscall.SIGINT)
	if code := second.exit(3 * time.Second); code != 0 {
		t.Errorf("exit %d after SIGINT", code)
	}
}

// A user's choice of context outlives the next start of a node.
func TestServeLeavesAnotherCurrentContextAlone(t *testing.T) {
	h := newHome(t)
	node := h.serve()
	h.ok("context", "add", "mine", h.path(".local/share/margay/context.yaml"))
	h.ok("context", "use", "mine")
	node.signal(syscall.SIGTERM)
	<-node.done
	h.serve()
	if got := h.ok("context", "show", "-o", "raw"); got != "mine\n" {
		t.Errorf("current is %q", got)
	}
}

func TestServeRefuses(t *testing.T) {
	h := newHome(t)
	h.serve()
	c, err := control.LoadContext(h.path(".local/share/margay/context.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := h.path("file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args, says string
		code       int
	}{
		{"--listen 127.0.0.1:0 --http 127.0.0.1:0", "stop the process", 4},
		{"--data other --http 127.0.0.1:0 --listen " + c.Addresses[0], "--listen", 4},
		{"--data other --listen 127.0.0.1:0 --http " + strings.TrimPrefix(c.HTTP, "http://"), "--http", 4},
		{"--data " + file, "--data", 4},
		{"--listen nonsense", "--listen", 2},
		{"--http 1:2:3", "--http", 2},
		{"--log-level loud", "--log-level", 2},
		{"extra", "serve --help", 2},
	}
	for _, test := range tests {
		got := h.run("", append([]string{"serve"}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.Contains(got.err, test.says) {
			t.Errorf("serve %s: %+v, want exit %d and %q", test.args, got, test.code, test.says)
		}
	}
}
