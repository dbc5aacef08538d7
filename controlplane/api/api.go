// SPDX-License-Identifier: Apache-2.0

// Package api is the REST API of the control plane.
package api

import (
	"log/slog"
	"net/http"
	"time"

	"margay.dev/controlplane/identity"
	"margay.dev/controlplane/streams"
)

// Config is what the API works on.
type Config struct {
	Streams *streams.Service
	Issuer  *identity.Issuer
	Wall    func() time.Time
	Logger  *slog.Logger
}

// New makes the handler.
func New(Config) (http.Handler, error) { return http.NotFoundHandler(), nil }
