// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// lines is a node's log, taken apart.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with returns the lines with this message.
func (l *lines) with(t *testing.T, msg string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	text := l.text.String()
	l.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("the log has a line %q: %v", line, err)
		}
		if m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// port tells connections apart: the local side of a socket that was never bound to one host knows no more.
func port(address any) string {
	_, p, _ := net.SplitHostPort(fmt.Sprint(address))
	return p
}

func logged(l *lines) margaytest.Option {
	return margaytest.With(func(c *node.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
}

// What happens on a connection is found under its id, with its peer, and with its subject once that is known.
func TestConnectionsAreLogged(t *testing.T) {
	var log lines
	n := margaytest.Start(t, logged(&log))
	create(t, n, control.StreamSpec{Name: "s"})
	has := func(what, msg string, fields map[string]any) {
		t.Helper()
		eventually(t, what, func() bool {
			for _, line := range log.with(t, msg) {
				ok := true
				for k, v := range fields {
					ok = ok && line[k] == v
				}
				if ok {
					return true
				}
			}
			return false
		})
	}

	stranger := dial(t, n)
	stranger.wantError(stranger.ctl, wire.AppendFrame(nil, 77, &wire.Auth{Token: "not one"}), code.Unauthenticated)
	refused := log.with(t, "token refused")
	if len(refused) != 1 || refused[0]["conn"] == "" || port(refused[0]["remote"]) != port(stranger.conn.LocalAddr().String()) || refused[0]["subject"] != nil {
		t.Fatalf("a refused token is logged as %v", refused)
	}
	if err := stranger.ctl.Write(bytes.Repeat([]byte("x"), 64)); err != nil {
		t.Fatal(err)
	}
	id := map[string]any{"conn": refused[0]["conn"]}
	has("the line on the peer that breaks the framing", "the peer broke the protocol", id)
	has("the end of its connection", "connection closed", map[string]any{"conn": id["conn"], "reason": "protocol"})

	known := dial(t, n).authenticate(n)
	var own map[string]any
	for _, line := range log.with(t, "authenticated") {
		if port(line["remote"]) == port(known.conn.LocalAddr().String()) {
			own = line
		}
	}
	if own == nil || own["subject"] == nil || own["conn"] == id["conn"] {
		t.Fatalf("no line says who authenticated, or under the id of another: %v", own)
	}
	_ = known.conn.Close(0, "")
	has("the end of the other connection, with its subject", "connection closed", map[string]any{"conn": own["conn"], "subject": own["subject"]})
}

// An operator sees which subscriber was too slow.
func TestSlowConsumerIsLogged(t *testing.T) {
	var log lines
	n := margaytest.Start(t, logged(&log))
	create(t, n, control.StreamSpec{Name: "s"})
	s := subscribe(t, n.Connect(), "s", client.Overflow(client.PolicyDisconnect), client.QueueLimits(64, 1<<20), client.ReceiveBuffer(32<<10))
	p := n.Connect().Publisher("s")
	for range 2000 { // far more than the queue and the transport hold
		p.PublishAsync(within(t), client.Record{Value: make([]byte, 8<<10)})
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	var err error
	for _, err = range s.Records(within(t)) {
		if err != nil {
			break
		}
	}
	wantCode(t, err, code.SlowConsumer, code.ClassRefused)
	for _, line := range log.with(t, "subscription ended") {
		if line["reason"] == "slow_consumer" && line["level"] == "INFO" && line["conn"] != nil && line["subject"] != nil {
			return
		}
	}
	t.Errorf("no line on the slow consumer: %v", log.with(t, "subscription ended"))
}
