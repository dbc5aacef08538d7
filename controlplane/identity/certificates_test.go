// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type clock struct{ now time.Time }

func (c *clock) wall() time.Time { return c.now }

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func openCertificates(t *testing.T, dir string, c *clock, hosts ...string) *Certificates {
	t.Helper()
	certs, err := OpenCertificates(CertificateOptions{Dir: dir, Cluster: "lab", Hosts: hosts, Wall: c.wall, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// handshake connects a client that trusts the CA to a server with the certificates.
func handshake(t *testing.T, c *Certificates, ca []byte, host string, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in the CA")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := l.Accept(); err == nil {
			_ = tls.Server(conn, c.TLS()).HandshakeContext(t.Context())
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	err = tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: host, Time: func() time.Time { return now }}).HandshakeContext(t.Context())
	_ = conn.Close()
	<-done
	return err
}

func TestClientsThatKnowTheCATrustTheServer(t *testing.T) {
	c := newClock()
	certs := openCertificates(t, t.TempDir(), c, "broker.example", "192.0.2.7")
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "broker.example", "192.0.2.7"} {
		if err := handshake(t, certs, certs.CA(), host, c.now); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := handshake(t, certs, certs.CA(), "other.example", c.now); err == nil {
		t.Error("a host that was not named is trusted")
	}
	other := openCertificates(t, t.TempDir(), c)
	if err := handshake(t, certs, other.CA(), "localhost", c.now); err == nil {
		t.Error("another cluster's CA vouches for this one")
	}
	if err := handshake(t, certs, certs.CA(), "localhost", c.now.Add(-30*time.Minute)); err != nil {
		t.Errorf("a client whose clock is half an hour behind: %v", err)
	}
}

func TestCertificatesStayOverRestarts(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	first := openCertificates(t, dir, c, "a.example")
	second := openCertificates(t, dir, c, "a.example")
	if string(first.CA()) != string(second.CA()) || !first.current.Load().Leaf.Equal(second.current.Load().Leaf) {
		t.Fatal("made anew without a reason")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	public, err := os.ReadFile(filepath.Join(dir, caPublicFile))
	if err != nil || strings.Contains(string(public), "PRIVATE") || string(public) != string(first.CA()) {
		t.Fatalf("the public file: %v", err)
	}
}

func TestServerCertificateIsMadeAnewWhenDue(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	first := openCertificates(t, dir, c)
	ca, leaf := string(first.CA()), first.current.Load().Leaf

	if moved := openCertificates(t, dir, c, "new.example"); moved.current.Load().Leaf.Equal(leaf) || string(moved.CA()) != ca {
		t.Error("other hosts: the server certificate stayed, or the CA did not")
	}
	first = openCertificates(t, dir, c)
	if renewed, err := first.Renew(); renewed || err != nil {
		t.Errorf("renewed for nothing: %v, %v", renewed, err)
	}
	c.now = first.Expires().Add(-29 * 24 * time.Hour)
	served := first.TLS()
	if renewed, err := first.Renew(); !renewed || err != nil {
		t.Fatalf("not renewed: %v, %v", renewed, err)
	}
	got, err := served.GetCertificate(nil)
	if err != nil || !got.Leaf.Equal(first.current.Load().Leaf) || !got.Leaf.NotAfter.After(c.now.Add(80*24*time.Hour)) {
		t.Error("a configuration handed out before does not serve the renewed certificate")
	}
	if err := handshake(t, first, []byte(ca), "localhost", c.now); err != nil {
		t.Errorf("after renewal: %v", err)
	}
	leaf = first.current.Load().Leaf
	if err := os.WriteFile(filepath.Join(dir, serverFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := openCertificates(t, dir, c); again.current.Load().Leaf.Equal(leaf) || string(again.CA()) != ca {
		t.Error("a damaged server certificate was not made anew")
	}
	c.now = c.now.Add(-300 * 24 * time.Hour) // the clock was wrong before
	if again := openCertificates(t, dir, c); again.due(again.current.Load().Leaf) != "" {
		t.Error("a certificate from the future stayed")
	}
}

func TestCAIsNeverReplacedSilently(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	certs := openCertificates(t, dir, c)
	path := filepath.Join(dir, caFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func() error {
		_, err := OpenCertificates(CertificateOptions{Dir: dir, Cluster: "lab", Wall: c.wall, Logger: slog.New(slog.DiscardHandler)})
		return err
	}
	for name, b := range map[string][]byte{"empty": nil, "torn": good[:len(good)/2], "no CA": certs.serverPEM(t)} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := try(); err == nil || !strings.Contains(err.Error(), caFile) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(b) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(caLife + time.Hour)
	if err := try(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("expired: %v", err)
	}
}

func (c *Certificates) serverPEM(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.o.Dir, serverFile))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestServerCertificateEndsNoLaterThanItsCA(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	certs := openCertificates(t, dir, c)
	c.now = certs.ca.cert.NotAfter.Add(-40 * 24 * time.Hour)
	if again := openCertificates(t, dir, c); again.Expires().After(certs.ca.cert.NotAfter) {
		t.Errorf("%v after %v", again.Expires(), certs.ca.cert.NotAfter)
	}
}

// OP-09: what is put in the place of the server's certificate is taken only if clients would take it.
func TestReloadRefusesWhatClientsWould(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	file := filepath.Join(dir, serverFile)
	old := openCertificates(t, dir, c)
	expiring, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(serverLife - renewAt + time.Hour)
	if renewed, err := old.Renew(); !renewed || err != nil {
		t.Fatalf("renew: %v, %v", renewed, err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(expiring) // near its end, and good: an operator may have reasons
	if changed, err := old.Reload(); !changed || err != nil {
		t.Fatalf("one that is still good: %v, %v", changed, err)
	}
	if err := handshake(t, old, old.CA(), "localhost", c.now); err != nil {
		t.Fatal(err)
	}
	if renewed, err := old.Renew(); !renewed || err != nil {
		t.Fatalf("renew again: %v, %v", renewed, err)
	}
	inUse := old.current.Load().Leaf

	c.now = c.now.Add(renewAt)
	put(expiring)
	if changed, err := old.Reload(); changed || err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired one: %v, %v", changed, err)
	}
	openCertificates(t, dir, c, "other.example") // writes one for other hosts
	if changed, err := old.Reload(); changed || err == nil || !strings.Contains(err.Error(), "other hosts") {
		t.Errorf("one for other hosts: %v, %v", changed, err)
	}
	if !old.current.Load().Leaf.Equal(inUse) {
		t.Error("what was refused is in use")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if changed, err := old.Reload(); !changed || err != nil || old.current.Load().Leaf.Equal(inUse) {
		t.Errorf("none: %v, %v", changed, err)
	}
}
