// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"margay.dev/wire/code"
)

// APIKeyPrefix begins every API key, so that scanners for leaked secrets find them.
const APIKeyPrefix = "mgk_"

// DefaultTimeout bounds a request that has no nearer deadline.
const DefaultTimeout = 5 * time.Second

// maxResponse bounds what the client reads of an answer, in bytes.
const maxResponse = 16 << 20

// ClientConfig says where the control plane is and how to authenticate. Only Address is required.
type ClientConfig struct {
	Address string // base URL, http or https
	CA      []byte // PEM; empty: the system's
	APIKey  string // exchanged for tokens as needed
	Token   string // used instead of exchanging the key
	// Timeout bounds each request, waiting for the answer included. Default DefaultTimeout.
	Timeout time.Duration
	// AllowPlain lets credentials cross a network in the clear. Without it plain HTTP is for loopback addresses.
	AllowPlain bool
	UserAgent  string
	// Dial opens connections, for a network that is simulated. Default: the operating system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client speaks to the control plane. Every error it returns is a *code.Error. It never sends a request twice, but for one
// that was answered "unauthenticated" because a cached token had come to its end. Safe for concurrent use.
type Client struct {
	base   *url.URL
	cfg    ClientConfig
	http   *http.Client
	cached atomic.Pointer[TokenResponse]
}

// NewClient checks the configuration; it does not connect.
func NewClient(cfg ClientConfig) (*Client, error) {
	base, err := url.Parse(cfg.Address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, code.New(code.BadRequest, "control plane address %q: want http://host:port or https://host:port", cfg.Address)
	}
	if base.Scheme == "http" && !cfg.AllowPlain && !isLoopback(base.Hostname()) {
		return nil, code.New(code.BadRequest, "control plane address %q: plain HTTP to another host would show the credential: use https", cfg.Address)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
		DialContext:         cfg.Dial,
	}
	if len(cfg.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(cfg.CA) {
			return nil, code.New(code.BadRequest, "control plane %s: the CA holds no PEM certificate", cfg.Address)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return &Client{base: base, cfg: cfg, http: &http.Client{
		Transport: transport,
		// A redirect would carry the credential to wherever an answer says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Token gives a token that is valid for another minute at least, exchanging the API key when the last one is not.
func (c *Client) Token(ctx context.Context) (TokenResponse, error) {
	if c.cfg.Token != "" {
		return TokenResponse{Token: c.cfg.Token}, nil
	}
	if t := c.cached.Load(); t != nil && time.Until(t.ExpiresAt) > time.Minute {
		return *t, nil
	}
	return c.Exchange(ctx)
}

// Exchange gets a new token for the API key.
func (c *Client) Exchange(ctx context.Context) (TokenResponse, error) {
	if c.cfg.APIKey == "" {
		return TokenResponse{}, code.New(code.Unauthenticated, "control plane %s: neither token nor API key", c.base)
	}
	var t TokenResponse
	if err := c.once(ctx, http.MethodPost, "/v1/token", "", "", TokenRequest{APIKey: c.cfg.APIKey}, &t); err != nil {
		return TokenResponse{}, err
	}
	c.cached.Store(&t)
	return t, nil
}

func ifMatch(version uint64) string {
	if version == 0 {
		return ""
	}
	return ETag(version)
}

func (c *Client) do(ctx context.Context, method, path, match string, in, out any) error {
	t, err := c.Token(ctx)
	if err != nil {
		return err
	}
	err = c.once(ctx, method, path, t.Token, match, in, out)
	var cert *tls.CertificateVerificationError
	if c.cfg.APIKey != "" && c.cfg.Token == "" && errors.Is(err, code.Unauthenticated) && !errors.As(err, &cert) {
		// Keys were rotated, or the two clocks differ: the request was not looked at, so sending it again is safe.
		if t, err = c.Exchange(ctx); err != nil {
			return err
		}
		err = c.once(ctx, method, path, t.Token, match, in, out)
	}
	return err
}

func (c *Client) once(ctx context.Context, method, path, token, match string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return code.New(code.BadRequest, "%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return code.New(code.BadRequest, "%s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, "+ProblemType)
	set := func(k, v string) {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	set("If-Match", match)
	set("User-Agent", c.cfg.UserAgent)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.transportError(ctx, method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	if err != nil {
		return c.transportError(ctx, method, path, err)
	}
	if len(b) > maxResponse {
		return code.New(code.TooLarge, "%s %s: the answer is larger than %d bytes", method, path, maxResponse)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return answerError(method, path, res, b)
	}
	if raw, ok := out.(*[]byte); ok { // what is no document: a profile
		*raw = b
		return nil
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return code.New(code.Internal, "%s %s: the answer is no document of ours: %w", method, path, err)
	}
	return nil
}

// transportError sorts a request without an answer by what that says about its effect: a connection that never came
// to be carried nothing; after that a change may have been made.
func (c *Client) transportError(ctx context.Context, method, path string, err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	changes := method != http.MethodGet && path != "/v1/token"
	switch {
	case errors.As(err, &cert):
		e := code.New(code.Unauthenticated, "%s %s: the server at %s is not the one of this context: %w", method, path, c.base.Host, cert)
		return e.WithClass(code.ClassFatal)
	case errors.As(err, &op) && op.Op == "dial":
		return code.New(code.Unavailable, "%s %s: cannot reach the control plane: %w", method, path, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return classed(code.New(code.Cancelled, "%s %s: %w", method, path, err), changes)
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return classed(code.New(code.Timeout, "%s %s: no answer in time: %w", method, path, err), changes)
	case changes:
		return code.New(code.OutcomeUnknown, "%s %s: the answer was lost: %w", method, path, err)
	}
	return code.New(code.Unavailable, "%s %s: %w", method, path, err)
}

func classed(e *code.Error, changes bool) *code.Error {
	if !changes {
		e.Class = code.ClassRefused
	}
	return e
}

func answerError(method, path string, res *http.Response, b []byte) error {
	var p ProblemDocument
	if strings.HasPrefix(res.Header.Get("Content-Type"), ProblemType) && json.Unmarshal(b, &p) == nil {
		p.Status = res.StatusCode
		e := p.Err()
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && e.RetryAfter == 0 && s >= 0 && s < 1e6 {
			e.RetryAfter = time.Duration(s) * time.Second
		}
		return e
	}
	e := code.New(codeOfStatus(res.StatusCode), "%s %s: %s, and not in our words: %s", method, path, res.Status, firstLine(b))
	if res.StatusCode >= 500 && method != http.MethodGet {
		e.Class = code.ClassUnknown // a proxy says this also when the server behind it went on
	}
	return e
}

func firstLine(b []byte) string {
	s, _, _ := strings.Cut(strings.TrimSpace(string(b[:min(len(b), 200)])), "\n")
	return fmt.Sprintf("%q", s)
}
