// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// request is what belongs to one request and is filled in on its way.
type request struct {
	id      string
	subject string // of its token
	address string // of its peer; no header can change that
}

type requestKey struct{}

func of(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

func requestID(ctx context.Context) string { return of(ctx).id }

// surround names each request, bounds it, logs it, and turns a panic into an answer.
func (a *API) surround(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := &request{id: givenID(r.Header.Get("X-Request-Id")), address: peer(r.RemoteAddr)}
		if req.id == "" {
			req.id = newID()
		}
		ctx := context.WithValue(r.Context(), requestKey{}, req)
		h := w.Header()
		h.Set("X-Request-Id", req.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		seen := &statusWriter{ResponseWriter: w}
		begin := a.cfg.Wall()
		defer func() {
			if p := recover(); p != nil {
				a.cfg.Logger.Error("request panicked", "request", req.id, "panic", p, "stack", string(debug.Stack()))
				if seen.status == 0 {
					writeProblem(seen, control.NewProblem(internal(), req.id))
				}
			}
			level := slog.LevelDebug
			if r.Method != http.MethodGet && seen.status < 300 && r.URL.Path != tokenPath { // clients fetch tokens all day
				level = slog.LevelInfo
			}
			a.cfg.Logger.Log(ctx, level, "request", "request", req.id, "method", r.Method, "path", r.URL.EscapedPath(), "status", seen.status,
				"subject", req.subject, "peer", req.address, "took", a.cfg.Wall().Sub(begin))
		}()
		if len(r.URL.EscapedPath()) > maxPath {
			p := control.NewProblem(code.New(code.TooLarge, "the path is longer than %d bytes", maxPath), req.id)
			p.Status, p.Title = http.StatusRequestURITooLong, http.StatusText(http.StatusRequestURITooLong)
			writeProblem(seen, p)
			return
		}
		next.ServeHTTP(seen, r.WithContext(ctx))
	})
}

// givenID takes over a caller's name for the request if it cannot be anything else in a log.
func givenID(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return ""
		}
	}
	return s
}

func newID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// peer is the address that failed logins are counted for: the connection's, whatever headers say. Who has one address of
// IPv6 has its whole network of 64 bits.
func peer(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap()
	if ip.Is6() {
		if p, err := ip.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets deadlines be set on the connection underneath.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
