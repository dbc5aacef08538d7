// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// logs are those of one preset, by the names that the client's user gives.
type logs struct {
	client *Client
	preset string
	control.Logs
}

func (c *Client) logs(preset string) logs { return logs{c, preset, c.http.Logs(preset)} }

func (s logs) ensure(ctx context.Context, spec control.LogSpec) (*control.LogDocument, error) {
	wait := backoff.Backoff{
		Rand: backoff.NewRand(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))), Base: 50 * time.Millisecond, Cap: 2 * time.Second,
	}
	for {
		d, err := s.ensureOnce(ctx, spec)
		if err == nil || code.From(err).Class == code.ClassFatal || ctx.Err() != nil {
			return d, err
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

func (s logs) ensureOnce(ctx context.Context, spec control.LogSpec) (*control.LogDocument, error) {
	d, err := s.create(ctx, spec)
	if err == nil {
		return d, s.differ(&spec, d)
	}
	if !errors.Is(err, code.AlreadyExists) && !errors.Is(err, code.Conflict) {
		return nil, err
	}
	d, getErr := s.get(ctx, spec.Name)
	if getErr != nil {
		return nil, err // a log of another preset has the name: what creating it said is the better answer
	}
	return d, s.differ(&spec, d)
}

func (s logs) create(ctx context.Context, spec control.LogSpec) (*control.LogDocument, error) {
	t, n, base, err := s.client.place(spec.Name)
	if err != nil {
		return nil, err
	}
	spec.Name = base
	return pointer(s.Create(ctx, t, n, spec))
}

func (s logs) get(ctx context.Context, name string) (*control.LogDocument, error) {
	t, n, base, err := s.client.place(name)
	if err != nil {
		return nil, err
	}
	return pointer(s.Get(ctx, t, n, base))
}

func (s logs) each(ctx context.Context, yield func(control.LogDocument, error) bool) {
	t, n, _, err := s.client.place("x")
	if err != nil {
		yield(control.LogDocument{}, err)
		return
	}
	for cursor := ""; ; {
		page, err := s.List(ctx, t, n, cursor, 0)
		if err != nil {
			yield(control.LogDocument{}, err)
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

func (s logs) update(ctx context.Context, name string, version uint64, patch control.LogPatch) (*control.LogDocument, error) {
	t, n, base, err := s.client.place(name)
	if err != nil {
		return nil, err
	}
	return pointer(s.Update(ctx, t, n, base, version, patch))
}

func (s logs) remove(ctx context.Context, name string, version uint64) error {
	t, n, base, err := s.client.place(name)
	if err != nil {
		return err
	}
	return s.Delete(ctx, t, n, base, version)
}

func pointer(d control.LogDocument, err error) (*control.LogDocument, error) {
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// differ lists what the spec names and the stream does not have.
func (s logs) differ(spec *control.LogSpec, have *control.LogDocument) error {
	var diffs []string
	interval := control.Duration(0)
	if have.FsyncInterval != nil {
		interval = *have.FsyncInterval
	}
	diffs = diff(diffs, "shards", spec.Shards, have.Shards)
	diffs = diff(diffs, "replicas", spec.Replicas, have.Replicas)
	diffs = diff(diffs, "ack", spec.Ack, have.Ack)
	diffs = diff(diffs, "min_ack", spec.MinAck, have.MinAck)
	diffs = diff(diffs, "fsync", spec.Fsync, have.Fsync)
	diffs = diff(diffs, "fsync_interval", spec.FsyncInterval, interval)
	diffs = diff(diffs, "storage", spec.Storage, have.Storage)
	diffs = diff(diffs, "keep", spec.Keep, have.Keep)
	diffs = diff(diffs, "max_keys", spec.MaxKeys, have.MaxKeys)
	diffs = diff(diffs, "ttl", spec.TTL, have.TTL)
	diffs = diff(diffs, "max_age", spec.MaxAge, have.MaxAge)
	diffs = diff(diffs, "max_bytes", spec.MaxBytes, have.MaxBytes)
	diffs = diff(diffs, "on_full", spec.OnFull, have.OnFull)
	diffs = diff(diffs, "dedup_window", spec.DedupWindow, have.DedupWindow)
	diffs = diff(diffs, "segment_bytes", spec.SegmentBytes, have.SegmentBytes)
	diffs = diff(diffs, "segment_age", spec.SegmentAge, have.SegmentAge)
	if len(diffs) == 0 {
		return nil
	}
	return code.New(code.Conflict, "%s %s exists with other settings: %s", s.preset, spec.Name, strings.Join(diffs, ", "))
}

func diff[T comparable](to []string, name string, want *T, have T) []string {
	if want == nil || *want == have {
		return to
	}
	return append(to, fmt.Sprintf("%s is %v, asked %v", name, have, *want))
}
