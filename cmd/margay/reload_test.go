// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// OP-09: a reload takes what can change, says what cannot, and a broken one changes nothing.
func TestReload(t *testing.T) {
	h := newHome(t)
	file := h.path("margay.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("listen: 127.0.0.1:0\nhttp: 127.0.0.1:0\nlog: {level: info, format: json}\n")
	node := h.start("serve", "--config", file)
	node.await(node.out, "margay serves at")
	h.ok("stream", "create", "orders")

	level := func(want string) {
		t.Helper()
		if got := h.ok("debug", "log-level", "-o", "raw"); got != want+"\n" {
			t.Errorf("the level is %q, want %s", got, want)
		}
	}
	node.signal(syscall.SIGHUP)
	node.await(node.err, "reload: the certificate is the same")
	level("info")

	configure("listen: 127.0.0.1:0\nhttp: 127.0.0.1:0\nlog: {level: warn, format: json}\nlimits: {connections: 5}\n")
	node.signal(syscall.SIGHUP)
	node.await(node.err, `"key":"limits.connections","in_effect":"10000","configured":"5"`)
	level("warn")

	configure("listen: 127.0.0.1:0\nlog: {level: loud}\n")
	node.signal(syscall.SIGHUP)
	node.await(node.err, "what is in effect stays")
	if said := node.err.String(); !strings.Contains(said, "log.level") {
		t.Errorf("the log does not say what is wrong:\n%s", said)
	}
	level("warn")

	h.ok("debug", "log-level", "debug")
	level("debug")
	h.ok("pub", "orders", "still served")
	if err := os.Remove(h.path(".local/share/margay/control/identity/server-with-key.pem")); err != nil {
		t.Fatal(err)
	}
	configure("listen: 127.0.0.1:0\nhttp: 127.0.0.1:0\nlog: {level: info, format: json}\n")
	node.signal(syscall.SIGHUP)
	node.await(node.err, "new connections are given the new certificate")
	level("info")
	if got := h.ok("sub", "orders", "--end", "-o", "raw"); got != "still served\n" {
		t.Errorf("read %q", got)
	}
}

// Only a node stays when its terminal goes.
func TestHangupEndsOtherCommands(t *testing.T) {
	h := newHome(t)
	h.serve()
	h.ok("stream", "create", "orders")
	sub := h.start("sub", "orders", "-o", "raw")
	for range 200 { // until it is there and has seen one
		if h.ok("pub", "orders", "one"); sub.out.String() != "" {
			break
		}
	}
	sub.signal(syscall.SIGHUP)
	<-sub.done
	if status := sub.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGHUP {
		t.Errorf("a subscriber ended with %v", sub.cmd.ProcessState)
	}
}
