// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

const logLevelPath = "/v1/debug/log-level"

// nodeResource is the node itself, which belongs to no tenant: no name begins with an underscore, so only a grant on
// everything covers it.
const nodeResource = "_node/_node/node"

// ofNode marks an operation on the node; it needs the permission to manage that.
func ofNode() map[string]any { return map[string]any{nodeResource: true} }

type logLevelInput struct {
	Body control.LogLevelDocument
}

type logLevelOutput struct {
	Body control.LogLevelDocument
}

func (a *API) registerLogLevel() {
	if a.cfg.Level == nil {
		return
	}
	tags := []string{"debug"}
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "get-log-level", Method: http.MethodGet, Path: logLevelPath, Tags: tags, Metadata: ofNode(),
		Summary: "Say what the node logs",
	}), a.getLogLevel)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "set-log-level", Method: http.MethodPut, Path: logLevelPath, Tags: tags, Metadata: ofNode(),
		Summary: "Change what the node logs", Description: "At once, and until it is changed again, reloaded or restarted.",
	}), a.setLogLevel)
}

func (a *API) getLogLevel(context.Context, *struct{}) (*logLevelOutput, error) {
	return &logLevelOutput{Body: control.LogLevelDocument{Level: control.LogLevel(a.cfg.Level.Level()).String()}}, nil
}

func (a *API) setLogLevel(ctx context.Context, in *logLevelInput) (*logLevelOutput, error) {
	var level control.LogLevel
	if err := level.UnmarshalText([]byte(in.Body.Level)); err != nil {
		return nil, a.fail(ctx, code.New(code.BadRequest, "level %w", err))
	}
	if old := a.cfg.Level.Level(); old != slog.Level(level) {
		a.cfg.Level.Set(slog.Level(level))
		// At a level that shows it, whichever of the two that is: who comes later must see why lines are missing.
		a.cfg.Logger.Log(ctx, max(old, slog.Level(level), slog.LevelInfo), "log level changed",
			"request", requestID(ctx), "from", control.LogLevel(old).String(), "to", level.String(), "subject", claimsOf(ctx).Subject)
	}
	return &logLevelOutput{Body: in.Body}, nil
}
