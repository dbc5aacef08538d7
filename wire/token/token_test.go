// SPDX-License-Identifier: Apache-2.0

package token

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type fixture struct {
	public  ed25519.PublicKey
	private ed25519.PrivateKey
	now     time.Time
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{public: pub, private: priv, now: testNow}
}

func (f *fixture) claims() Claims {
	return Claims{
		Issuer: "margay/test", Subject: "key/owner", Tenant: "default", Grants: []Grant{FullGrant()},
		IssuedAt: f.now, ExpiresAt: f.now.Add(15 * time.Minute),
	}
}

func (f *fixture) verifier() Verifier {
	return Verifier{
		Issuer: "margay/test",
		Keys: func(kid string) ed25519.PublicKey {
			if kid == "k1" {
				return f.public
			}
			return nil
		},
		Wall: func() time.Time { return f.now },
	}
}

func (f *fixture) sign(t testing.TB, change func(*Claims)) string {
	t.Helper()
	c := f.claims()
	if change != nil {
		change(&c)
	}
	s, err := Sign(f.private, "k1", c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forge makes a token from raw parts, as an attacker would.
func (f *fixture) forge(t *testing.T, header map[string]any, change func(map[string]any), sign func(input []byte) []byte) string {
	t.Helper()
	claims := map[string]any{
		"iss": "margay/test", "aud": []string{Audience}, "sub": "key/owner",
		"exp":    f.now.Add(time.Minute).Unix(),
		"grants": []Grant{FullGrant()},
	}
	if change != nil {
		change(claims)
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	input := enc.EncodeToString(h) + "." + enc.EncodeToString(b)
	return input + "." + enc.EncodeToString(sign([]byte(input)))
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	f := newFixture(t)
	c, err := f.verifier().Verify(f.sign(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject != "key/owner" || c.Tenant != "default" || c.KeyID != "k1" || c.Audience != Audience ||
		!c.ExpiresAt.Equal(f.now.Add(15*time.Minute)) || !c.IssuedAt.Equal(f.now) {
		t.Fatalf("claims %+v", c)
	}
	if !c.Allows(Publish, "default/default/orders") {
		t.Fatal("a full grant does not allow a publish")
	}
}

func TestVerifyRefuses(t *testing.T) {
	f := newFixture(t)
	other := newFixture(t)
	der, err := x509.MarshalPKIXPublicKey(f.public)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs := func(secret []byte) func([]byte) []byte {
		return func(in []byte) []byte { m := hmac.New(sha256.New, secret); m.Write(in); return m.Sum(nil) }
	}
	ed := func(in []byte) []byte {
		s, err := f.private.Sign(rand.Reader, in, crypto.Hash(0))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	nothing := func([]byte) []byte { return nil }
	good := map[string]any{"alg": "EdDSA", "typ": "JWT", "kid": "k1"}
	with := func(k string, v any) map[string]any {
		m := map[string]any{}
		maps.Copy(m, good)
		if v == nil {
			delete(m, k)
		} else {
			m[k] = v
		}
		return m
	}
	if _, err := f.verifier().Verify(f.forge(t, good, nil, ed)); err != nil {
		t.Fatalf("the forge itself is wrong: %v", err)
	}
	valid := f.sign(t, nil)
	parts := strings.Split(valid, ".")
	cases := map[string]string{
		"empty":                      "",
		"garbage":                    "a.b.c",
		"alg none":                   f.forge(t, with("alg", "none"), nil, nothing),
		"alg None":                   f.forge(t, with("alg", "None"), nil, nothing),
		"alg empty":                  f.forge(t, with("alg", ""), nil, nothing),
		"alg missing":                f.forge(t, with("alg", nil), nil, ed),
		"HS256 with public key":      f.forge(t, with("alg", "HS256"), nil, hs(f.public)),
		"HS256 with public key PEM":  f.forge(t, with("alg", "HS256"), nil, hs(publicPEM)),
		"RS256 under our kid":        f.forge(t, with("alg", "RS256"), nil, ed),
		"EdDSA claim, HMAC inside":   f.forge(t, good, nil, hs(f.public)),
		"foreign kid":                f.forge(t, with("kid", "k2"), nil, ed),
		"no kid":                     f.forge(t, with("kid", nil), nil, ed),
		"kid of another type":        f.forge(t, with("kid", 1), nil, ed),
		"embedded jwk":               f.forge(t, with("jwk", map[string]string{"kty": "OKP"}), nil, ed),
		"embedded jku":               f.forge(t, with("jku", "https://example.com/keys"), nil, ed),
		"crit header":                f.forge(t, with("crit", []string{"exp"}), nil, ed),
		"another's key under our id": other.sign(t, nil),
		"wrong audience":             f.forge(t, good, func(m map[string]any) { m["aud"] = "somebody" }, ed),
		"no audience":                f.forge(t, good, func(m map[string]any) { delete(m, "aud") }, ed),
		"wrong issuer":               f.sign(t, func(c *Claims) { c.Issuer = "margay/other" }),
		"no expiry":                  f.forge(t, good, func(m map[string]any) { delete(m, "exp") }, ed),
		"expiry of another type":     f.forge(t, good, func(m map[string]any) { m["exp"] = "tomorrow" }, ed),
		"no subject":                 f.forge(t, good, func(m map[string]any) { delete(m, "sub") }, ed),
		"not yet valid":              f.forge(t, good, func(m map[string]any) { m["nbf"] = f.now.Add(time.Minute).Unix() }, ed),
		"body exchanged":             parts[0] + "." + strings.Split(f.sign(t, func(c *Claims) { c.Subject = "root" }), ".")[1] + "." + parts[2],
		"signature cut":              valid[:len(valid)-4],
		"trailing part":              valid + ".x",
		"oversized":                  valid + strings.Repeat("x", MaxSize),
	}
	for name, tok := range cases {
		c, err := f.verifier().Verify(tok)
		if c != nil || !errors.Is(err, ErrInvalid) || err.Error() != ErrInvalid.Error() {
			t.Errorf("%s: claims %v, error %v; want the one refusal", name, c, err)
		}
	}
}

func TestEveryTamperedByteIsRefused(t *testing.T) {
	f := newFixture(t)
	valid := f.sign(t, nil)
	for i := range valid {
		for _, x := range []byte{'A', '.', '9'} {
			if valid[i] == x {
				continue
			}
			b := []byte(valid)
			b[i] = x
			if _, err := f.verifier().Verify(string(b)); err == nil {
				t.Fatalf("byte %d changed to %q still verifies", i, x)
			}
		}
	}
}

func TestExpiryIsToldApart(t *testing.T) {
	f := newFixture(t)
	tok := f.sign(t, nil)
	foreign := f.sign(t, func(c *Claims) { c.Issuer = "margay/other" })
	f.now = f.now.Add(15 * time.Minute)
	if _, err := f.verifier().Verify(tok); !errors.Is(err, ErrExpired) {
		t.Fatalf("at its expiry: %v", err)
	}
	if _, err := f.verifier().Verify(foreign); !errors.Is(err, ErrInvalid) {
		t.Fatalf("an expired token of another issuer: %v", err)
	}
	f.now = f.now.Add(-time.Second)
	if _, err := f.verifier().Verify(tok); err != nil {
		t.Fatalf("a second before: %v", err)
	}
}

func TestVerifierWithoutItsFieldsRefuses(t *testing.T) {
	f := newFixture(t)
	tok := f.sign(t, nil)
	if _, err := (Verifier{}).Verify(tok); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	v := f.verifier()
	v.Issuer = ""
	if _, err := v.Verify(tok); !errors.Is(err, ErrInvalid) {
		t.Fatal("an empty issuer must not mean any issuer")
	}
}

func TestSignRefusesClaimsNobodyShouldHold(t *testing.T) {
	f := newFixture(t)
	for name, change := range map[string]func(*Claims){
		"no issuer":      func(c *Claims) { c.Issuer = "" },
		"no subject":     func(c *Claims) { c.Subject = "" },
		"no expiry":      func(c *Claims) { c.ExpiresAt = time.Time{} },
		"other audience": func(c *Claims) { c.Audience = "x" },
		"no action":      func(c *Claims) { c.Grants = []Grant{{Resource: "*"}} },
		"unknown action": func(c *Claims) { c.Grants = []Grant{{Actions: []Action{"own"}, Resource: "*"}} },
		"two levels":     func(c *Claims) { c.Grants = []Grant{{Actions: []Action{Any}, Resource: "a/b"}} },
		"partial star":   func(c *Claims) { c.Grants = []Grant{{Actions: []Action{Any}, Resource: "a/b/c*"}} },
	} {
		c := f.claims()
		change(&c)
		if _, err := Sign(f.private, "k1", c); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
	if _, err := Sign(f.private, "", f.claims()); err == nil {
		t.Error("signed without a key id")
	}
	if _, err := Sign(nil, "k1", f.claims()); err == nil {
		t.Error("signed without a key")
	}
}

func TestAllows(t *testing.T) {
	for _, tc := range []struct {
		actions  []Action
		pattern  string
		ask      Action
		resource string
		want     bool
	}{
		{[]Action{Any}, "*", Manage, "t/n/x", true},
		{[]Action{Any}, "*/*/*", Manage, "t/n/x", true},
		{[]Action{Publish}, "t/n/x", Publish, "t/n/x", true},
		{[]Action{Publish}, "t/n/x", Subscribe, "t/n/x", false},
		{[]Action{Publish, Subscribe}, "t/n/*", Subscribe, "t/n/x", true},
		{[]Action{Publish}, "t/*/x", Publish, "t/other/x", true},
		{[]Action{Publish}, "t/*/x", Publish, "u/other/x", false},
		{[]Action{Publish}, "t/n/x", Publish, "t/n/xy", false},
		{[]Action{Publish}, "t/n/xy", Publish, "t/n/x", false},
		{[]Action{Manage}, "t/n/*", Manage, "t/n/*", true},
		{[]Action{Manage}, "t/n/x", Manage, "t/n/*", false},
		{[]Action{Any}, "*", Publish, "", false},
		{[]Action{Any}, "*", Publish, "t/n", false},
		{[]Action{Any}, "*", Publish, "t/n/", false},
		{[]Action{Any}, "*", Publish, "t//x", false},
		{[]Action{Any}, "*", Publish, "t/n/x/y", false},
		{[]Action{Any}, "", Publish, "t/n/x", false},
		{[]Action{Any}, "t/n", Publish, "t/n/x", false},
		{[]Action{Any}, "t/n/{id}", Publish, "t/n/x", false},
		{[]Action{Any}, "t/n/#", Publish, "t/n/x", false},
		{[]Action{Any}, "t/n/x/*", Publish, "t/n/x", false},
		{nil, "*", Publish, "t/n/x", false},
	} {
		c := &Claims{Grants: []Grant{{Actions: tc.actions, Resource: tc.pattern}}}
		if got := c.Allows(tc.ask, tc.resource); got != tc.want {
			t.Errorf("%v on %q asked %s %q: %v", tc.actions, tc.pattern, tc.ask, tc.resource, got)
		}
	}
	if (&Claims{}).Allows(Publish, "t/n/x") {
		t.Error("no grant allows something")
	}
}

func TestAllowsSome(t *testing.T) {
	for _, tc := range []struct {
		pattern           string
		tenant, namespace string
		want              bool
	}{
		{"*", "t", "n", true},
		{"t/n/x", "t", "n", true},
		{"t/n/*", "t", "n", true},
		{"*/n/x", "t", "n", true},
		{"t/m/x", "t", "n", false},
		{"u/*/*", "t", "n", false},
		{"t/n", "t", "n", false},
		{"", "t", "n", false},
		{"t/n/", "t", "n", false},
		{"*", "", "n", false},
		{"t/n/x", "t/n", "x", false},
		{"t/n/x/y", "t", "n", false},
	} {
		c := &Claims{Grants: []Grant{{Actions: []Action{Manage}, Resource: tc.pattern}}}
		if got := c.AllowsSome(Manage, tc.tenant, tc.namespace); got != tc.want {
			t.Errorf("%q in %s/%s: %v", tc.pattern, tc.tenant, tc.namespace, got)
		}
		if c.AllowsSome(Publish, tc.tenant, tc.namespace) {
			t.Errorf("%q allows another action", tc.pattern)
		}
	}
}

func TestAllowsDoesNotAllocate(t *testing.T) {
	c := &Claims{Grants: []Grant{{Actions: []Action{Manage}, Resource: "a/b/*"}, {Actions: []Action{Publish}, Resource: "t/*/orders"}, FullGrant()}}
	if n := testing.AllocsPerRun(100, func() { _ = c.Allows(Publish, "t/n/x") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAllows(b *testing.B) {
	c := &Claims{Grants: []Grant{{Actions: []Action{Manage}, Resource: "a/b/*"}, {Actions: []Action{Publish}, Resource: "t/*/orders"}}}
	b.ReportAllocs()
	for b.Loop() {
		if !c.Allows(Publish, "t/namespace/orders") {
			b.Fatal("denied")
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	f := newFixture(b)
	tok, v := f.sign(b, nil), f.verifier()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(tok); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	fx := newFixture(f)
	f.Add(fx.sign(f, nil))
	f.Add("a.b.c")
	v := fx.verifier()
	f.Fuzz(func(t *testing.T, s string) {
		c, err := v.Verify(s)
		if (c == nil) == (err == nil) {
			t.Fatalf("claims %v, error %v", c, err)
		}
	})
}
