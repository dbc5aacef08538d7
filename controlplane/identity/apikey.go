// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"strings"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// An API key reads mgk_<id>_<secret>: the id finds the row, the secret has 256 random bits. A fast hash is enough for
// it, since nobody can go through what it might be.
const (
	keyIDBytes     = 10
	keySecretBytes = 32
)

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewAPIKey makes a key. The plain one is shown once and stored nowhere.
func NewAPIKey(name, tenant string, grants []token.Grant, now time.Time) (plain string, row catalog.APIKey) {
	b := make([]byte, keyIDBytes+keySecretBytes)
	_, _ = rand.Read(b) // never fails: the runtime ends the process when the system has no randomness
	id := keyEncoding.EncodeToString(b[:keyIDBytes])
	plain = control.APIKeyPrefix + id + "_" + keyEncoding.EncodeToString(b[keyIDBytes:])
	hash := sha256.Sum256([]byte(plain))
	return plain, catalog.APIKey{ID: id, Name: name, Hash: hash[:], Tenant: tenant, Grants: grants, CreatedAt: now}
}

// keyID is the id in a key that has the form of one.
func keyID(plain string) (string, bool) {
	rest, ok := strings.CutPrefix(plain, control.APIKeyPrefix)
	if !ok {
		return "", false
	}
	id, secret, ok := strings.Cut(rest, "_")
	return id, ok && len(id) == keyEncoding.EncodedLen(keyIDBytes) && len(secret) == keyEncoding.EncodedLen(keySecretBytes)
}

func keyMatches(row *catalog.APIKey, plain string) bool {
	hash := sha256.Sum256([]byte(plain))
	return subtle.ConstantTimeCompare(hash[:], row.Hash) == 1
}
