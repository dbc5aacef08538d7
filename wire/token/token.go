// SPDX-License-Identifier: Apache-2.0

package token

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Audience is the only audience a token of this platform is for.
const Audience = "margay"

// MaxSize bounds what Verify looks at, in bytes: a token comes from somebody who is not yet trusted.
const MaxSize = 8 << 10

// ErrInvalid is the one answer to every token that is not ours, whatever is wrong with it: the reason would only help
// somebody who is forging one. ErrExpired is told apart only for a token that is ours in every other respect, so that
// an honest client knows to fetch a new one.
var (
	ErrInvalid = errors.New("token: not valid here")
	ErrExpired = errors.New("token: expired")
)

// Claims is what a token says about its holder.
type Claims struct {
	Issuer   string
	Audience string
	Subject  string
	// Tenant is the holder's home: where short names resolve, and whom quotas and the audit count. It grants nothing;
	// only Grants do.
	Tenant    string
	Grants    []Grant
	IssuedAt  time.Time
	ExpiresAt time.Time
	KeyID     string // of the signing key
}

// Allows reports whether a grant covers the action on "tenant/namespace/name". Without a grant it is denied. Of publishing
// and subscribing it says no more than that some keys may be covered: see AllowsKey and KeyLimits.
func (c *Claims) Allows(a Action, resource string) bool {
	for i := range c.Grants {
		if c.Grants[i].allows(a, resource) {
			return true
		}
	}
	return false
}

// AllowsKey reports whether a grant covers the action on records of one key, nil for records without one. What has no key is
// covered by grants without patterns only. It allocates nothing.
func (c *Claims) AllowsKey(a Action, resource string, key []byte) bool {
	for i := range c.Grants {
		if g := &c.Grants[i]; g.allows(a, resource) && g.matchesKey(key) {
			return true
		}
	}
	return false
}

// KeyLimits returns the patterns of all grants that cover the action on the resource; who reads by filters may have those
// that lie within one of them. It is not limited when a grant has no patterns; it is limited to nothing when no grant
// covers the action. The patterns are not to be changed.
func (c *Claims) KeyLimits(a Action, resource string) (patterns []string, limited bool) {
	for i := range c.Grants {
		g := &c.Grants[i]
		switch {
		case !g.allows(a, resource):
		case len(g.Keys) == 0:
			return nil, false
		case patterns == nil:
			patterns = slices.Clip(g.Keys)
		default:
			patterns = append(patterns, g.Keys...)
		}
	}
	return patterns, true
}

// AllowsSome reports whether a grant covers the action on anything in a namespace, be it one name: who holds none has no
// business there, and is not told more than that.
func (c *Claims) AllowsSome(a Action, tenant, namespace string) bool {
	for i := range c.Grants {
		if c.Grants[i].reaches(a, tenant, namespace) {
			return true
		}
	}
	return false
}

func (c *Claims) check() error {
	var errs []error
	if c.Issuer == "" {
		errs = append(errs, errors.New("no issuer"))
	}
	if c.Audience != "" && c.Audience != Audience {
		errs = append(errs, fmt.Errorf("audience %q is not %q", c.Audience, Audience))
	}
	if c.Subject == "" {
		errs = append(errs, errors.New("no subject"))
	}
	if c.ExpiresAt.IsZero() {
		errs = append(errs, errors.New("no expiry"))
	}
	for i := range c.Grants {
		if err := c.Grants[i].check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// body is the claims as they stand in the JWT.
type body struct {
	jwt.RegisteredClaims
	Tenant string  `json:"tenant,omitempty"`
	Grants []Grant `json:"grants,omitempty"`
}

// Sign makes a token of the claims, under the key id by which verifiers find the key's public half.
func Sign(key ed25519.PrivateKey, kid string, c Claims) (string, error) {
	if err := c.check(); err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	if kid == "" || len(key) != ed25519.PrivateKeySize {
		return "", errors.New("sign token: needs an ed25519 key and its id")
	}
	b := body{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    c.Issuer,
			Subject:   c.Subject,
			Audience:  jwt.ClaimStrings{Audience},
			ExpiresAt: jwt.NewNumericDate(c.ExpiresAt),
		},
		Tenant: c.Tenant,
		Grants: c.Grants,
	}
	if !c.IssuedAt.IsZero() {
		b.IssuedAt = jwt.NewNumericDate(c.IssuedAt)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, b)
	t.Header["kid"] = kid
	s, err := t.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return s, nil
}

// Verifier checks tokens offline. All three fields are required; it is safe for concurrent use if Keys and Wall are.
type Verifier struct {
	Issuer string
	// Keys gives the public key of a key id, nil for an unknown one. It must answer from memory: a token may carry any
	// key id, and a fetch per unknown one would let a stranger drive the fetches.
	Keys func(kid string) ed25519.PublicKey
	Wall func() time.Time
}

// Verify gives the claims of a token that is ours and has not expired, else ErrInvalid or ErrExpired.
func (v Verifier) Verify(token string) (*Claims, error) {
	if len(token) > MaxSize || v.Issuer == "" || v.Keys == nil || v.Wall == nil {
		return nil, ErrInvalid
	}
	var b body
	var kid string
	parser := jwt.NewParser(
		// The algorithm is pinned here, not taken from the token: otherwise a public key would serve as an HMAC secret.
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(v.Issuer),
		jwt.WithAudience(Audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(v.Wall),
		jwt.WithStrictDecoding(),
	)
	_, err := parser.ParseWithClaims(token, &b, func(t *jwt.Token) (any, error) {
		for name := range t.Header {
			// Our tokens carry these three; anything else (jwk, jku, x5c, crit) asks for a trust we do not give.
			if name != "alg" && name != "typ" && name != "kid" {
				return nil, ErrInvalid
			}
		}
		var ok bool
		if kid, ok = t.Header["kid"].(string); !ok || kid == "" {
			return nil, ErrInvalid
		}
		if key := v.Keys(kid); len(key) == ed25519.PublicKeySize {
			return key, nil
		}
		return nil, ErrInvalid
	})
	switch {
	case err == nil:
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidIssuer) &&
		!errors.Is(err, jwt.ErrTokenInvalidAudience):
		return nil, ErrExpired
	default:
		return nil, ErrInvalid
	}
	if b.Subject == "" {
		return nil, ErrInvalid
	}
	c := &Claims{
		Issuer: b.Issuer, Audience: Audience, Subject: b.Subject, Tenant: b.Tenant, Grants: b.Grants,
		ExpiresAt: b.ExpiresAt.Time, KeyID: kid,
	}
	if b.IssuedAt != nil {
		c.IssuedAt = b.IssuedAt.Time
	}
	return c, nil
}
