// SPDX-License-Identifier: Apache-2.0

// Package admin creates, lists, changes and deletes streams, caches and queues through the control plane's REST API; it
// touches HTTP only, moves no records, and refuses to change what it was only asked to ensure.
package admin

import (
	"context"
	"iter"
	"time"

	"margay.dev/client/internal/contexts"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Stream is a stream with all of its settings.
type Stream = control.Stream

// StreamSpec is what a stream should be. What is nil gets its default when the stream is created, and is not compared
// when it exists: StreamSpec{Name: "orders", Shards: new(4)}.
type StreamSpec = control.StreamSpec

// StreamPatch changes what it names.
type StreamPatch = control.StreamPatch

// Cache is a cache with all of its settings.
type Cache = control.Cache

// CacheSpec is what a cache should be; what is nil, as in StreamSpec.
type CacheSpec = control.CacheSpec

// CachePatch changes what it names.
type CachePatch = control.CachePatch

// Queue is a queue with all of its settings.
type Queue = control.Queue

// QueueSpec is what a queue should be; what is nil, as in StreamSpec.
type QueueSpec = control.QueueSpec

// QueuePatch changes what it names.
type QueuePatch = control.QueuePatch

// Duration is a span of time as settings have it: new(admin.Duration(30 * time.Minute)).
type Duration = control.Duration

// Config says where the control plane is and who asks.
type Config struct {
	// HTTP is the base URL of the control plane.
	HTTP string
	// APIKey or Token authenticate.
	APIKey, Token string
	// CA verifies the control plane (PEM); empty for the system's.
	CA []byte
	// Tenant and Namespace are where short names belong. Default: "default" in "default".
	Tenant, Namespace string
	// Timeout of one request. Default control.DefaultTimeout.
	Timeout time.Duration
}

// Client is safe for concurrent use.
type Client struct {
	cfg  Config
	http *control.Client
}

// New returns a client. It does not connect.
func New(cfg Config) (*Client, error) {
	hc, err := control.NewClient(control.ClientConfig{
		Address: cfg.HTTP, CA: cfg.CA, APIKey: cfg.APIKey, Token: cfg.Token, Timeout: cfg.Timeout, UserAgent: "margay-go",
	})
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, http: hc}, nil
}

// FromContext returns a client for a context.
func FromContext(k control.Context) (*Client, error) {
	return New(Config{HTTP: k.HTTP, APIKey: k.APIKey, CA: []byte(k.CA), Tenant: k.Tenant, Namespace: k.Namespace})
}

// Named returns a client for a context file: NAME.yaml in margay/contexts of the user's configuration directory.
func Named(name string) (*Client, error) {
	k, err := contexts.Load(name)
	if err != nil {
		return nil, err
	}
	return FromContext(*k)
}

// Close drops idle connections.
func (c *Client) Close() { c.http.Close() }

// place splits a name, which may be short, "namespace/name" or in full.
func (c *Client) place(name string) (tenant, namespace, base string, err error) {
	tenant, namespace, base, err = control.SplitName(name, c.cfg.Tenant, c.cfg.Namespace)
	if err != nil {
		err = code.New(code.BadRequest, "%w", err)
	}
	return tenant, namespace, base, err
}

// EnsureStream creates the stream, or checks that the one there has the settings that spec names. It changes nothing:
// settings that differ are an error with code Conflict that lists them. What fails on the way is tried again until ctx
// ends.
func (c *Client) EnsureStream(ctx context.Context, spec StreamSpec) (*Stream, error) {
	d, err := c.logs(control.PresetStream).ensure(ctx, control.LogSpec(spec))
	return (*Stream)(d), err
}

// CreateStream creates a stream, or finds the very same one there already.
func (c *Client) CreateStream(ctx context.Context, spec StreamSpec) (*Stream, error) {
	d, err := c.logs(control.PresetStream).create(ctx, control.LogSpec(spec))
	return (*Stream)(d), err
}

// Stream returns a stream.
func (c *Client) Stream(ctx context.Context, name string) (*Stream, error) {
	d, err := c.logs(control.PresetStream).get(ctx, name)
	return (*Stream)(d), err
}

// Streams iterates over the streams of the client's namespace, in order of name. An error is the last element.
func (c *Client) Streams(ctx context.Context) iter.Seq2[Stream, error] {
	return func(yield func(Stream, error) bool) {
		c.logs(control.PresetStream).each(ctx, func(d control.LogDocument, err error) bool { return yield(Stream(d), err) })
	}
}

// UpdateStream changes what the patch names. With a version other than 0 it does so only if the stream is still at
// it, and fails with code Conflict otherwise.
func (c *Client) UpdateStream(ctx context.Context, name string, version uint64, patch StreamPatch) (*Stream, error) {
	d, err := c.logs(control.PresetStream).update(ctx, name, version, control.LogPatch(patch))
	return (*Stream)(d), err
}

// DeleteStream deletes a stream and its records; version as in UpdateStream.
func (c *Client) DeleteStream(ctx context.Context, name string, version uint64) error {
	return c.logs(control.PresetStream).remove(ctx, name, version)
}

// EnsureCache creates the cache, or checks that the one there has the settings that spec names; see EnsureStream.
func (c *Client) EnsureCache(ctx context.Context, spec CacheSpec) (*Cache, error) {
	d, err := c.logs(control.PresetCache).ensure(ctx, control.LogSpec(spec))
	return (*Cache)(d), err
}

// CreateCache creates a cache, or finds the very same one there already.
func (c *Client) CreateCache(ctx context.Context, spec CacheSpec) (*Cache, error) {
	d, err := c.logs(control.PresetCache).create(ctx, control.LogSpec(spec))
	return (*Cache)(d), err
}

// Cache returns a cache.
func (c *Client) Cache(ctx context.Context, name string) (*Cache, error) {
	d, err := c.logs(control.PresetCache).get(ctx, name)
	return (*Cache)(d), err
}

// Caches iterates over the caches of the client's namespace, in order of name. An error is the last element.
func (c *Client) Caches(ctx context.Context) iter.Seq2[Cache, error] {
	return func(yield func(Cache, error) bool) {
		c.logs(control.PresetCache).each(ctx, func(d control.LogDocument, err error) bool { return yield(Cache(d), err) })
	}
}

// UpdateCache changes what the patch names; version as in UpdateStream.
func (c *Client) UpdateCache(ctx context.Context, name string, version uint64, patch CachePatch) (*Cache, error) {
	d, err := c.logs(control.PresetCache).update(ctx, name, version, control.LogPatch(patch))
	return (*Cache)(d), err
}

// DeleteCache deletes a cache and its records; version as in UpdateStream.
func (c *Client) DeleteCache(ctx context.Context, name string, version uint64) error {
	return c.logs(control.PresetCache).remove(ctx, name, version)
}

// EnsureQueue creates the queue, or checks that the one there has the settings that spec names; see EnsureStream.
func (c *Client) EnsureQueue(ctx context.Context, spec QueueSpec) (*Queue, error) {
	d, err := c.logs(control.PresetQueue).ensure(ctx, control.LogSpec(spec))
	return (*Queue)(d), err
}

// CreateQueue creates a queue, or finds the very same one there already.
func (c *Client) CreateQueue(ctx context.Context, spec QueueSpec) (*Queue, error) {
	d, err := c.logs(control.PresetQueue).create(ctx, control.LogSpec(spec))
	return (*Queue)(d), err
}

// Queue returns a queue.
func (c *Client) Queue(ctx context.Context, name string) (*Queue, error) {
	d, err := c.logs(control.PresetQueue).get(ctx, name)
	return (*Queue)(d), err
}

// Queues iterates over the queues of the client's namespace, in order of name. An error is the last element.
func (c *Client) Queues(ctx context.Context) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		c.logs(control.PresetQueue).each(ctx, func(d control.LogDocument, err error) bool { return yield(Queue(d), err) })
	}
}

// UpdateQueue changes what the patch names; version as in UpdateStream.
func (c *Client) UpdateQueue(ctx context.Context, name string, version uint64, patch QueuePatch) (*Queue, error) {
	d, err := c.logs(control.PresetQueue).update(ctx, name, version, control.LogPatch(patch))
	return (*Queue)(d), err
}

// DeleteQueue deletes a queue and its records; version as in UpdateStream.
func (c *Client) DeleteQueue(ctx context.Context, name string, version uint64) error {
	return c.logs(control.PresetQueue).remove(ctx, name, version)
}
