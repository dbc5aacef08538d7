// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/controlplane/catalog/embedded"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

func openStore(t *testing.T, dir string) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(filepath.Join(dir, "catalog.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newIssuer(t *testing.T, s catalog.Credentials, c *clock) *Issuer {
	t.Helper()
	i, err := NewIssuer(t.Context(), s, "margay/lab", c.wall)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestExchange(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir())
	i := newIssuer(t, s, c)
	plain, row := NewAPIKey("owner", "default", []token.Grant{token.FullGrant()}, c.now)
	if err := s.AddAPIKey(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	tok, expires, err := i.Exchange(t.Context(), plain)
	if err != nil || !expires.Equal(c.now.Add(TokenLife)) {
		t.Fatalf("%v, %v", expires, err)
	}
	claims, err := i.Verify(tok)
	if err != nil || claims.Subject != "key/"+row.ID || claims.Tenant != "default" || !claims.ExpiresAt.Equal(expires) ||
		!claims.Allows(token.Publish, "default/default/orders") {
		t.Fatalf("%+v, %v", claims, err)
	}
	c.now = expires
	if _, err := i.Verify(tok); !errors.Is(err, token.ErrExpired) {
		t.Errorf("at its end: %v", err)
	}
}

// Whatever is wrong with a key, the answer is one.
func TestExchangeRefusesAllAlike(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir())
	i := newIssuer(t, s, c)
	plain, row := NewAPIKey("owner", "default", []token.Grant{token.FullGrant()}, c.now)
	row.ExpiresAt = c.now.Add(time.Hour)
	stranger, _ := NewAPIKey("stranger", "default", nil, c.now)
	if err := s.AddAPIKey(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := i.Exchange(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	var first string
	for _, bad := range []string{
		"", "mgk_", "mgk__", stranger, plain + "a", plain[:len(plain)-1], plain[:len(plain)-1] + "_", strings.ToUpper(plain),
		strings.Split(plain, "_")[2], "mgk_" + row.ID + "_" + strings.Repeat("a", 52), strings.Repeat("x", 1<<16), "expired",
	} {
		if bad == "expired" {
			c.now, bad = row.ExpiresAt, plain
		}
		tok, _, err := i.Exchange(t.Context(), bad)
		if first == "" && err != nil {
			first = err.Error()
		}
		if tok != "" || !errors.Is(err, code.Unauthenticated) || err.Error() != first {
			t.Errorf("%.80q: %v", bad, err)
		}
	}
}

func TestTokenEndsWithItsKey(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir())
	i := newIssuer(t, s, c)
	plain, row := NewAPIKey("short", "default", nil, c.now)
	row.ExpiresAt = c.now.Add(time.Minute)
	if err := s.AddAPIKey(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	if _, expires, err := i.Exchange(t.Context(), plain); err != nil || !expires.Equal(row.ExpiresAt) {
		t.Fatalf("%v, %v", expires, err)
	}
}

func TestTokensOutliveARestartAndAnotherSigningKey(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir())
	i := newIssuer(t, s, c)
	plain, row := NewAPIKey("owner", "default", nil, c.now)
	if err := s.AddAPIKey(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	before, _, err := i.Exchange(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	k, err := newSigningKey(c.now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddSigningKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	again := newIssuer(t, s, c)
	after, _, err := again.Exchange(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := again.Verify(after)
	if err != nil || claims.KeyID != k.ID {
		t.Errorf("the newest key does not sign: %+v, %v", claims, err)
	}
	if _, err := again.Verify(before); err != nil {
		t.Errorf("a token of the older key: %v", err)
	}
	other := newIssuer(t, openStore(t, t.TempDir()), c)
	if _, err := other.Verify(after); !errors.Is(err, token.ErrInvalid) {
		t.Errorf("another cluster takes the token: %v", err)
	}
}

func TestStoredKeyIsOfNoUse(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	plain, row := NewAPIKey("owner", "default", nil, c.now)
	if err := openStore(t, dir).AddAPIKey(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(plain, "mgk_"+row.ID+"_") {
		t.Fatalf("the key %q", plain)
	}
	secret := strings.Split(plain, "_")[2]
	matches, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(matches) == 0 {
		t.Fatal(err)
	}
	for _, path := range matches {
		if strings.Contains(readFile(t, path), secret) {
			t.Errorf("%s holds the secret", path)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
