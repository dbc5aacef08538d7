// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

// TokenLife is how long a token is good for. Nothing takes one back before, so it is short.
const TokenLife = 15 * time.Minute

// Issuer exchanges API keys for tokens and checks tokens. Safe for concurrent use.
type Issuer struct {
	keys     catalog.Credentials
	wall     func() time.Time
	verifier token.Verifier
	signer   ed25519.PrivateKey
	signerID string
}

// NewIssuer takes the signing keys of the catalog, making the first: the newest signs, all verify.
func NewIssuer(ctx context.Context, keys catalog.Credentials, issuer string, wall func() time.Time) (*Issuer, error) {
	all, err := keys.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		k, err := newSigningKey(wall())
		if err != nil {
			return nil, err
		}
		if err := keys.AddSigningKey(ctx, k); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	i := &Issuer{keys: keys, wall: wall}
	public := make(map[string]ed25519.PublicKey, len(all))
	for _, k := range all {
		i.signer, i.signerID = ed25519.NewKeyFromSeed(k.Seed), k.ID
		public[k.ID] = i.signer.Public().(ed25519.PublicKey)
	}
	i.verifier = token.Verifier{Issuer: issuer, Keys: func(kid string) ed25519.PublicKey { return public[kid] }, Wall: wall}
	return i, nil
}

// newSigningKey makes a key whose id follows from its public half: no two keys can come to share one.
func newSigningKey(now time.Time) (catalog.SigningKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return catalog.SigningKey{}, fmt.Errorf("make signing key: %w", err)
	}
	sum := sha256.Sum256(public)
	return catalog.SigningKey{ID: hex.EncodeToString(sum[:8]), Seed: private.Seed(), CreatedAt: now.UTC()}, nil
}

// Exchange gives a token for an API key. Whatever is wrong with the key, the answer is the same.
func (i *Issuer) Exchange(ctx context.Context, apiKey string) (tok string, expires time.Time, err error) {
	refused := func() (string, time.Time, error) {
		return "", time.Time{}, code.New(code.Unauthenticated, "the API key is not valid")
	}
	id, ok := keyID(apiKey)
	if !ok {
		return refused()
	}
	row, err := i.keys.APIKey(ctx, id)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return "", time.Time{}, err
	}
	// The comparison is made for an unknown id too, so that the time it takes does not tell one from a wrong secret.
	matches := keyMatches(&row, apiKey)
	now := i.wall()
	if err != nil || !matches || (!row.ExpiresAt.IsZero() && !now.Before(row.ExpiresAt)) {
		return refused()
	}
	expires = now.Add(TokenLife).Truncate(time.Second).UTC()
	if !row.ExpiresAt.IsZero() && row.ExpiresAt.Before(expires) {
		expires = row.ExpiresAt
	}
	tok, err = i.Issue("key/"+row.ID, row.Tenant, row.Grants, expires)
	return tok, expires, err
}

// Issue signs a token for a subject with these grants.
func (i *Issuer) Issue(subject, tenant string, grants []token.Grant, expires time.Time) (string, error) {
	return token.Sign(i.signer, i.signerID, token.Claims{
		Issuer: i.verifier.Issuer, Subject: subject, Tenant: tenant, Grants: grants, IssuedAt: i.wall(), ExpiresAt: expires,
	})
}

// Verify checks a token. Its errors are token.ErrInvalid and token.ErrExpired.
func (i *Issuer) Verify(tok string) (*token.Claims, error) { return i.verifier.Verify(tok) }
