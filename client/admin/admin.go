// SPDX-License-Identifier: Apache-2.0

// Package admin creates, lists, changes and deletes streams through the control plane's REST API; it touches HTTP only,
// moves no records, and refuses to change what it was only asked to ensure.
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"margay.dev/client/internal/backoff"
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
	wait := backoff.Backoff{
		Rand: backoff.NewRand(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))), Base: 50 * time.Millisecond, Cap: 2 * time.Second,
	}
	for {
		s, err := c.ensure(ctx, spec)
		if err == nil || code.From(err).Class == code.ClassFatal || ctx.Err() != nil {
			return s, err
		}
		t := time.NewTimer(max(wait.Next(), code.From(err).RetryAfter))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

func (c *Client) ensure(ctx context.Context, spec StreamSpec) (*Stream, error) {
	s, err := c.CreateStream(ctx, spec)
	if err == nil {
		return s, c.differ(&spec, s)
	}
	if !errors.Is(err, code.AlreadyExists) && !errors.Is(err, code.Conflict) {
		return nil, err
	}
	s, getErr := c.Stream(ctx, spec.Name)
	if getErr != nil {
		return nil, err // a log of another kind has the name: what creating it said is the better answer
	}
	return s, c.differ(&spec, s)
}

// CreateStream creates a stream, or finds the very same one there already.
func (c *Client) CreateStream(ctx context.Context, spec StreamSpec) (*Stream, error) {
	t, n, base, err := c.place(spec.Name)
	if err != nil {
		return nil, err
	}
	spec.Name = base
	s, err := c.http.CreateStream(ctx, t, n, spec)
	return pointer(s, err)
}

// Stream returns a stream.
func (c *Client) Stream(ctx context.Context, name string) (*Stream, error) {
	t, n, base, err := c.place(name)
	if err != nil {
		return nil, err
	}
	s, err := c.http.Stream(ctx, t, n, base)
	return pointer(s, err)
}

// Streams iterates over the streams of the client's namespace, in order of name. An error is the last element.
func (c *Client) Streams(ctx context.Context) iter.Seq2[Stream, error] {
	return func(yield func(Stream, error) bool) {
		t, n, _, err := c.place("x")
		if err != nil {
			yield(Stream{}, err)
			return
		}
		for cursor := ""; ; {
			page, err := c.http.Streams(ctx, t, n, cursor, 0)
			if err != nil {
				yield(Stream{}, err)
				return
			}
			for i := range page.Items {
				if !yield(page.Items[i], nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// UpdateStream changes what the patch names. With a version other than 0 it does so only if the stream is still at
// it, and fails with code Conflict otherwise.
func (c *Client) UpdateStream(ctx context.Context, name string, version uint64, patch StreamPatch) (*Stream, error) {
	t, n, base, err := c.place(name)
	if err != nil {
		return nil, err
	}
	s, err := c.http.UpdateStream(ctx, t, n, base, version, patch)
	return pointer(s, err)
}

// DeleteStream deletes a stream and its records; version as in UpdateStream.
func (c *Client) DeleteStream(ctx context.Context, name string, version uint64) error {
	t, n, base, err := c.place(name)
	if err != nil {
		return err
	}
	return c.http.DeleteStream(ctx, t, n, base, version)
}

func pointer(s Stream, err error) (*Stream, error) {
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// differ lists what the spec names and the stream does not have.
func (c *Client) differ(spec *StreamSpec, s *Stream) error {
	var diffs []string
	interval := control.Duration(0)
	if s.FsyncInterval != nil {
		interval = *s.FsyncInterval
	}
	diffs = diff(diffs, "shards", spec.Shards, s.Shards)
	diffs = diff(diffs, "replicas", spec.Replicas, s.Replicas)
	diffs = diff(diffs, "ack", spec.Ack, s.Ack)
	diffs = diff(diffs, "min_ack", spec.MinAck, s.MinAck)
	diffs = diff(diffs, "fsync", spec.Fsync, s.Fsync)
	diffs = diff(diffs, "fsync_interval", spec.FsyncInterval, interval)
	diffs = diff(diffs, "storage", spec.Storage, s.Storage)
	diffs = diff(diffs, "max_age", spec.MaxAge, s.MaxAge)
	diffs = diff(diffs, "max_bytes", spec.MaxBytes, s.MaxBytes)
	diffs = diff(diffs, "on_full", spec.OnFull, s.OnFull)
	diffs = diff(diffs, "dedup_window", spec.DedupWindow, s.DedupWindow)
	diffs = diff(diffs, "segment_bytes", spec.SegmentBytes, s.SegmentBytes)
	diffs = diff(diffs, "segment_age", spec.SegmentAge, s.SegmentAge)
	if len(diffs) == 0 {
		return nil
	}
	return code.New(code.Conflict, "stream %s exists with other settings: %s", spec.Name, strings.Join(diffs, ", "))
}

func diff[T comparable](to []string, name string, want *T, have T) []string {
	if want == nil || *want == have {
		return to
	}
	return append(to, fmt.Sprintf("%s is %v, asked %v", name, have, *want))
}
