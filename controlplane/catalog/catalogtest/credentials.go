// SPDX-License-Identifier: Apache-2.0

package catalogtest

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"reflect"
	"testing"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/token"
)

func testAPIKeys(t *testing.T, o Opened) {
	s := o.Store
	key := catalog.APIKey{
		ID: "i1", Name: "owner", Hash: bytes.Repeat([]byte{7}, 32), Tenant: "default", Grants: []token.Grant{token.FullGrant()},
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	if err := s.AddAPIKey(t.Context(), key, false); err != nil {
		t.Fatal(err)
	}
	if got, err := s.APIKey(t.Context(), "i1"); err != nil || !reflect.DeepEqual(got, key) {
		t.Fatalf("%+v, %v", got, err)
	}
	sameName, sameID := key, key
	sameName.ID, sameID.Name = "i2", "other"
	for _, k := range []catalog.APIKey{sameName, sameID} {
		if err := s.AddAPIKey(t.Context(), k, false); !errors.Is(err, catalog.ErrExists) {
			t.Errorf("%s as %s: %v", k.ID, k.Name, err)
		}
	}
	if err := s.AddAPIKey(t.Context(), sameID, true); !errors.Is(err, catalog.ErrExists) {
		t.Errorf("an id in use was replaced: %v", err)
	}
	if err := s.AddAPIKey(t.Context(), sameName, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.APIKey(t.Context(), "i1"); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("the replaced key: %v", err)
	}
	third := catalog.APIKey{ID: "i0", Name: "another"}
	if err := s.AddAPIKey(t.Context(), third, false); err != nil {
		t.Fatal(err)
	}
	all, err := s.APIKeys(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != "i0" || all[1].ID != "i2" {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := s.RemoveAPIKey(t.Context(), "i2"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAPIKey(t.Context(), "i2"); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

func testSigningKeys(t *testing.T, o Opened) {
	s := o.Store
	newer := catalog.SigningKey{ID: "a", Seed: bytes.Repeat([]byte{1}, ed25519.SeedSize), CreatedAt: time.Unix(20, 0).UTC()}
	older := catalog.SigningKey{ID: "b", Seed: bytes.Repeat([]byte{2}, ed25519.SeedSize), CreatedAt: time.Unix(10, 0).UTC()}
	for _, k := range []catalog.SigningKey{newer, older} {
		if err := s.AddSigningKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddSigningKey(t.Context(), newer); !errors.Is(err, catalog.ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if err := s.AddSigningKey(t.Context(), catalog.SigningKey{ID: "c", Seed: []byte{1}}); err == nil {
		t.Error("stored a key that is none")
	}
	got, err := s.SigningKeys(t.Context())
	if err != nil || !reflect.DeepEqual(got, []catalog.SigningKey{older, newer}) {
		t.Fatalf("%+v, %v", got, err)
	}
	public := mustSnapshot(t, s).SigningKeys
	if len(public) != 2 || public[0].ID != "b" || !public[1].Public.Equal(ed25519.NewKeyFromSeed(newer.Seed).Public()) {
		t.Errorf("in the snapshot: %+v", public)
	}
}
