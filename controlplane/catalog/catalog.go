// SPDX-License-Identifier: Apache-2.0

// Package catalog says what the control plane stores and what it may rely on: interfaces and values only, no storage of
// its own; an implementation is one that passes package catalogtest.
//
// Every change is one transaction that is durable when the call returns, and raises the catalog's version by one. A
// method that fails has changed nothing, but for one whose error wraps ErrUncertain.
package catalog

import (
	"context"
	"errors"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// The failures that callers tell apart.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("already exists")
	ErrVersion   = errors.New("changed in the meantime")
	ErrForeign   = errors.New("belongs to another")
	ErrNewer     = errors.New("written by a newer version")
	ErrLocked    = errors.New("in use by another process")
	ErrClosed    = errors.New("closed")
	ErrUncertain = errors.New("may or may not have been stored")
)

// Name is the address of a log.
type Name struct{ Tenant, Namespace, Name string }

// String is the address as users write it.
func (n Name) String() string { return control.FullName(n.Tenant, n.Namespace, n.Name) }

// NameOf is the address of a log.
func NameOf(l *control.Log) Name { return Name{l.Tenant, l.Namespace, l.Name} }

// Store is a whole catalog.
type Store interface {
	Logs
	Feed
	Credentials
	// Close wakes everybody in Wait with ErrClosed; it may be called again.
	Close() error
}

// Logs are the logs of all tenants.
type Logs interface {
	// Create stores a log that has an id and gives every shard to the leader, at generation 0. Where the name is
	// taken it returns the log that has it, and ErrExists.
	Create(ctx context.Context, l control.Log, leader string) (control.Log, error)
	// Log gets one, or ErrNotFound.
	Log(ctx context.Context, n Name) (control.Log, error)
	// List gets at most limit logs of a namespace whose names come after the given one, in order of name.
	List(ctx context.Context, tenant, namespace, after string, limit int) ([]control.Log, error)
	// Update lets change work on the log, if that is still at the version (0: whatever it is at; else ErrVersion). An
	// error of change leaves the log as it was and is returned. Change may run more than once, and a change that
	// changes nothing leaves the version alone too.
	Update(ctx context.Context, n Name, version uint64, change func(*control.Log) error) (control.Log, error)
	// Delete frees the name and takes the assignments away, if the log is still at the version (as in Update) and allow
	// has no error for it, which is returned otherwise; nil allows every log. The log itself stays in the snapshot, as
	// deleted, until it is forgotten.
	Delete(ctx context.Context, n Name, version uint64, allow func(*control.Log) error) error
	// Forget drops deleted logs whose data is gone everywhere. Ids of others, and unknown ones, are passed over.
	Forget(ctx context.Context, ids ...batch.LogID) error
}

// Feed is what brokers follow and take the lead by.
type Feed interface {
	// Snapshot is the state at the newest version.
	Snapshot(ctx context.Context) (control.Snapshot, error)
	// Wait returns the newest version once that is above after. A version that the catalog has not reached yet was
	// seen by somebody in a copy of it that is gone: ErrVersion, at once.
	Wait(ctx context.Context, after uint64) (uint64, error)
	// Lead raises the generation of every shard in refs that is assigned to the node, all in one transaction, and
	// returns those assignments in order of refs, each once. A ref that is not the node's, or no longer there, is left out.
	Lead(ctx context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error)
	// SetNode stores a node's address.
	SetNode(ctx context.Context, n control.Node) error
	// Bind gives the catalog the name of its cluster; one that has another refuses with ErrForeign.
	Bind(ctx context.Context, cluster string) error
	// Cluster is the name the catalog is bound to, empty for none.
	Cluster(ctx context.Context) (string, error)
}

// Credentials are the keys of users and of the cluster itself.
type Credentials interface {
	// AddAPIKey stores a key under an id and a name that no other has, else ErrExists. With replace, the keys that
	// have the name are removed in the same transaction.
	AddAPIKey(ctx context.Context, k APIKey, replace bool) error
	// APIKey gets a key by its id, or ErrNotFound.
	APIKey(ctx context.Context, id string) (APIKey, error)
	// APIKeys lists them in order of name.
	APIKeys(ctx context.Context) ([]APIKey, error)
	// RemoveAPIKey removes a key by its id, or ErrNotFound.
	RemoveAPIKey(ctx context.Context, id string) error
	// AddSigningKey stores a key that signs tokens; ErrExists for an id that is there.
	AddSigningKey(ctx context.Context, k SigningKey) error
	// SigningKeys lists them, the oldest first.
	SigningKeys(ctx context.Context) ([]SigningKey, error)
}

// APIKey is a stored API key: enough to recognise it, not to use it.
type APIKey struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Hash      []byte        `json:"hash"` // SHA-256 of the whole key
	Tenant    string        `json:"tenant"`
	Grants    []token.Grant `json:"grants"`
	CreatedAt time.Time     `json:"created_at"`
	ExpiresAt time.Time     `json:"expires_at"` // zero: never
}

// SigningKey is a key pair that signs tokens.
type SigningKey struct {
	ID        string    `json:"id"`
	Seed      []byte    `json:"seed"` // of the ed25519 key; a secret
	CreatedAt time.Time `json:"created_at"`
}

// Issuer is the issuer of the tokens of a cluster.
func Issuer(cluster string) string { return "margay/" + cluster }
