// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
	"margay.dev/wire/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t *testing.T) context.Context {
	t.Helper()
	return await.Within(t)
}

func owner(t *testing.T, n *margaytest.Node) string {
	t.Helper()
	return n.Token(control.DefaultTenant, time.Hour, token.FullGrant())
}

func get(t *testing.T, url, tok string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if tok != "" {
		req.Header.Set("Authorization", "Bearer "+tok)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Metrics and profiles tell what all tenants do: they are for who may manage the node, and for nobody else.
func TestInsightNeedsACredential(t *testing.T) {
	n := margaytest.Start(t)
	tenant := n.Token(control.DefaultTenant, time.Hour, token.Grant{Actions: []token.Action{token.Manage}, Resource: "default/*/*"})
	for path, want := range map[string]string{
		"/metrics":                          "go_goroutines",
		"/debug/pprof/":                     "goroutine",
		"/debug/pprof/heap":                 "",
		"/debug/pprof/goroutine?debug=1":    "goroutine profile:",
		"/debug/pprof/cmdline":              "",
		"/debug/pprof/symbol":               "num_symbols",
		"/debug/pprof/profile?seconds=1":    "",
		"/debug/pprof/trace?seconds=0.1":    "",
		"/debug/pprof/heap?gc=1":            "",
		"/debug/pprof/threadcreate?debug=1": "threadcreate profile:",
		"/debug/pprof/block?seconds=1":      "",
		"/debug/pprof/mutex?seconds=1":      "",
	} {
		for who, tok := range map[string]string{"nobody": "", "a stranger": "x.y.z", "a tenant": tenant} {
			if status, body := get(t, n.HTTP()+path, tok); status != http.StatusUnauthorized || strings.Contains(body, "goroutine") || !strings.Contains(body, `"request_id":"`) {
				t.Errorf("%s gets %s: %d %.100s", who, path, status, body)
			}
		}
		if status, body := get(t, n.HTTP()+path, owner(t, n)); status != http.StatusOK || body == "" || !strings.Contains(body, want) {
			t.Errorf("the owner gets %s: %d %.100s", path, status, body)
		}
	}
}

func TestLogLevelOfARunningNode(t *testing.T) {
	var level slog.LevelVar
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Level = &level }))
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if d, err := api.SetLogLevel(within(t), "warn"); err != nil || d.Level != "warn" || level.Level() != slog.LevelWarn {
		t.Fatalf("set: %+v, %v, the level is %v", d, err, level.Level())
	}
	if d, err := api.LogLevel(within(t)); err != nil || d.Level != "warn" {
		t.Fatalf("get: %+v, %v", d, err)
	}
	if _, err := api.SetLogLevel(within(t), "loud"); err == nil || level.Level() != slog.LevelWarn {
		t.Fatalf("a level that is none: %v, the level is %v", err, level.Level())
	}
}

// serverCertificate is the one that a new connection of clients is shown.
func serverCertificate(t *testing.T, n *margaytest.Node) [32]byte {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(n.Context().CA)) {
		t.Fatal("the context holds no CA")
	}
	var sum [32]byte
	c, err := sessiontest.Dial(within(t), n.Address(), &tls.Config{
		RootCAs: pool, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(s tls.ConnectionState) error {
			sum = sha256.Sum256(s.PeerCertificates[0].Raw)
			return nil
		},
	}, session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close(0, "")
	return sum
}

// OP-09: a certificate that is put in place is shown to who connects from then on; who is connected notices nothing; one
// that cannot be used changes nothing and says why.
func TestCertificateRotation(t *testing.T) {
	var info node.Info
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Ready = func(i node.Info) { info = i } }))
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateStream(within(t), cc.Tenant, cc.Namespace, control.StreamSpec{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	c := n.Connect()
	p := c.Publisher("s")
	sub, err := c.Subscribe(within(t), "s", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	published := 0
	live := func(when string) {
		t.Helper()
		if _, err := p.Publish(within(t), client.Record{Value: []byte(when)}); err != nil {
			t.Fatalf("%s: the connection that was open: %v", when, err)
		}
		published++
	}
	reload := func(wantNew bool, says string) {
		t.Helper()
		changed, err := info.ReloadCertificates()
		if changed != wantNew || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Fatalf("reload: %v, %v; want %v, %q", changed, err, wantNew, says)
		}
	}
	file := filepath.Join(n.Dir(), "control", "identity", "server-with-key.pem")
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() []byte {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}

	live("before")
	first, firstFile := serverCertificate(t, n), read()
	reload(false, "")

	// A file that is gone is made anew.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	reload(true, "")
	second, secondFile := serverCertificate(t, n), read()
	if second == first {
		t.Fatal("a new connection is shown the old certificate")
	}
	live("after the first change")

	// Half of a file, nonsense, the certificate of one with the key of the other, another node's: all refused.
	another := margaytest.Start(t)
	foreign, err := os.ReadFile(filepath.Join(another.Dir(), "control", "identity", "server-with-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	certOf, _ := pem.Decode(firstFile)
	_, keyOf := pem.Decode(secondFile)
	for says, b := range map[string][]byte{
		"server certificate":             firstFile[:len(firstFile)/2],
		"PEM":                            []byte("nonsense"),
		"private key does not match":     append(pem.EncodeToMemory(certOf), keyOf...),
		"not from this CA":               foreign,
		"failed to find any PEM data in": nil,
	} {
		write(b)
		reload(false, says)
		if serverCertificate(t, n) != second {
			t.Fatalf("%s: the certificate changed", says)
		}
		live("after " + says)
	}

	// The first one again: it is still good, and is put back in place.
	write(firstFile)
	reload(true, "")
	if serverCertificate(t, n) != first {
		t.Fatal("the certificate that was put back is not shown")
	}
	live("after the last change")
	var seen []string
	for rec, err := range sub.Records(within(t)) {
		if err != nil {
			t.Fatalf("the subscription that was open: %v", err)
		}
		seen = append(seen, string(rec.Value))
		if len(seen) == published {
			break
		}
	}
	if got, err := json.Marshal(seen); err != nil || seen[0] != "before" || len(seen) != published {
		t.Errorf("read %s, %v", got, err)
	}
}
