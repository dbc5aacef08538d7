// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"margay.dev/broker"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// health is what the probes answer from.
type health struct{ ready atomic.Bool }

// routes are what the node serves over HTTP: probes and metrics here, everything else is the control
// plane's.
func (n *node) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", n.readyz)
	mux.Handle("GET /metrics", n.authenticated(promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{})))
	n.profiles(mux)
	mux.Handle("/", n.settled(n.control.Handler()))
	return mux
}

// settled answers a change of the catalog once the broker serves it: who creates a stream and publishes to
// it at once is not told that there is none.
func (n *node) settled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w = &settledWriter{ResponseWriter: w, ctx: r.Context(), broker: n.broker}
		}
		next.ServeHTTP(w, r)
	})
}

// settleWithin bounds the wait: the change is stored whether or not the broker has caught up.
const settleWithin = 5 * time.Second

type settledWriter struct {
	http.ResponseWriter
	ctx    context.Context //nolint:containedctx // the request's, for as long as it is answered
	broker *broker.Broker
	wrote  bool
}

func (w *settledWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		version, err := strconv.ParseUint(strings.Trim(w.Header().Get("ETag"), `"`), 10, 64) // the catalog version of the change
		if err == nil && status < 300 {
			ctx, cancel := context.WithTimeout(w.ctx, settleWithin)
			_ = w.broker.WaitApplied(ctx, version) // late is no failure of the change
			cancel()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *settledWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *settledWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// nodeResource is what belongs to the node and to no tenant: no name begins with an underscore, so only a
// grant on everything covers it.
const nodeResource = "_node/_node/metrics"

// authenticated lets through who shows a token with the grant to manage. Each request has an id, as those to the control
// plane have.
func (n *node) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := randomHex(8)
		w.Header().Set("X-Request-Id", id)
		log := n.cfg.Logger.With("request", id, "method", r.Method, "path", r.URL.EscapedPath(), "peer", r.RemoteAddr)
		tok, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if ok {
			if claims, err := n.broker.Verify(tok); err == nil && claims.Allows(token.Manage, nodeResource) {
				log.Debug("request", "subject", claims.Subject)
				next.ServeHTTP(w, r)
				return
			}
		}
		log.Debug("request", "status", http.StatusUnauthorized)
		w.Header().Set("WWW-Authenticate", `Bearer realm="margay"`)
		w.Header().Set("Content-Type", control.ProblemType)
		w.WriteHeader(http.StatusUnauthorized)
		why := code.New(code.Unauthenticated, "this needs a token that may manage the node")
		_ = json.NewEncoder(w).Encode(control.NewProblem(why, id)) // the caller has gone
	})
}

func (n *node) readyz(w http.ResponseWriter, _ *http.Request) {
	checks := n.checks(n.broker.Report())
	status := http.StatusOK
	if verdict(checks) == control.Unhealthy {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"ready": status == http.StatusOK, "checks": checks}) // the prober has gone
}

func newRegistry(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "margay_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	r.MustRegister(info)
	return r
}

func registerTransport(r *prometheus.Registry, counted map[string]*session.Stats) {
	for transport, s := range counted {
		registerStats(prometheus.WrapRegistererWith(prometheus.Labels{"transport": transport}, r), s)
	}
}

func registerStats(r prometheus.Registerer, s *session.Stats) {
	gauge := func(name, help string, v func() int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(v()) }))
	}
	counter := func(name, help string, v func() uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v()) }))
	}
	gauge("margay_transport_connections", "Transport connections open.", s.OpenConns.Load)
	gauge("margay_transport_lanes", "Lanes open.", s.OpenLanes.Load)
	gauge("margay_transport_outbound_bytes", "Bytes of answers that wait on lanes for their clients to take them.", s.Outbound.Load)
	counter("margay_transport_in_bytes_total", "Frame bytes received.", s.BytesIn.Load)
	counter("margay_transport_out_bytes_total", "Frame bytes sent.", s.BytesOut.Load)
	counter("margay_transport_refused_total", "Connections refused over a limit.", s.RefusedConns.Load)
}
