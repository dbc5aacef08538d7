// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

type tokenInput struct {
	Body control.TokenRequest
}

type tokenOutput struct {
	Body control.TokenResponse
}

// tokenPath is where an API key is exchanged for a token: one of the few open routes.
const tokenPath = "/v1/token"

func (a *API) registerTokens() {
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "create-token", Method: http.MethodPost, Path: tokenPath, Security: open(), Tags: []string{"credentials"},
		Summary:     "Exchange an API key for a token",
		Description: "The token is good for 15 minutes, on this API and on the brokers. Failed exchanges are limited per address.",
	}), a.createToken)
}

func (a *API) createToken(ctx context.Context, in *tokenInput) (*tokenOutput, error) {
	req, now := of(ctx), a.cfg.Wall()
	if wait := a.logins.wait(req.address, now); wait > 0 {
		return nil, a.fail(ctx, code.New(code.Overloaded, "too many failed logins from this address").Retry(wait))
	}
	tok, expires, err := a.cfg.Issuer.Exchange(ctx, in.Body.APIKey)
	if errors.Is(err, code.Unauthenticated) {
		a.logins.failed(req.address, now)
		a.cfg.Logger.Warn("login failed", "request", req.id, "peer", req.address)
	}
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	return &tokenOutput{Body: control.TokenResponse{Token: tok, ExpiresAt: expires}}, nil
}
