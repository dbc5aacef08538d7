// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"time"

	"margay.dev/wire/control"
)

// TokenSource gives a fresh token and says when it expires (zero: not known). It is called again before that, and
// when a broker no longer takes the last one. An error of class fatal ends the attempts.
type TokenSource func(ctx context.Context) (token string, expires time.Time, err error)

// freshMargin is how much life a cached token must have left to be shown to a broker.
const freshMargin = 5 * time.Second

// fixedToken is a credential that cannot be renewed.
type fixedToken string

func (t fixedToken) Token(context.Context) (string, time.Time, error) {
	return string(t), time.Time{}, nil
}

func (t fixedToken) Renew(context.Context, string) (string, time.Time, error) {
	return string(t), time.Time{}, nil
}

// cachedCredential shares the tokens of a source between the connections of a client, so that three connections
// that lose their broker together ask for one token.
type cachedCredential struct {
	source TokenSource
	gate   chan struct{} // holds one call of the source at a time

	mu      sync.Mutex
	token   string
	expires time.Time
}

func newCachedCredential(source TokenSource) *cachedCredential {
	return &cachedCredential{source: source, gate: make(chan struct{}, 1)}
}

func (c *cachedCredential) cached() (token string, expires time.Time, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh = c.token != "" && (c.expires.IsZero() || time.Until(c.expires) > freshMargin)
	return c.token, c.expires, fresh
}

func (c *cachedCredential) Token(ctx context.Context) (string, time.Time, error) {
	token, expires, fresh := c.cached()
	if fresh {
		return token, expires, nil
	}
	return c.Renew(ctx, token)
}

func (c *cachedCredential) Renew(ctx context.Context, old string) (string, time.Time, error) {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return "", time.Time{}, ctx.Err()
	}
	if token, expires, fresh := c.cached(); fresh && token != old {
		return token, expires, nil
	}
	token, expires, err := c.source(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	c.mu.Lock()
	c.token, c.expires = token, expires
	c.mu.Unlock()
	return token, expires, nil
}

// apiKeySource exchanges an API key at the control plane.
func apiKeySource(hc *control.Client) TokenSource {
	return func(ctx context.Context) (string, time.Time, error) {
		// Not kept open until the next token is due: a thousand clients would hold a thousand connections of the
		// control plane, which then lets nobody in.
		defer hc.Close()
		t, err := hc.Exchange(ctx)
		return t.Token, t.ExpiresAt, err
	}
}
