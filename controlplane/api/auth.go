// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// open marks an operation that needs no token.
func open() []map[string][]string { return []map[string][]string{} }

type claimsKey struct{}

func claimsOf(ctx context.Context) *token.Claims {
	if c, ok := ctx.Value(claimsKey{}).(*token.Claims); ok {
		return c
	}
	return &token.Claims{}
}

// authenticate stands before every operation and asks in this order: who is it, do the names make sense, may they. The
// catalog is not looked at, so the answer to somebody without the permission is the same whether the thing exists or not.
func (a *API) authenticate(ctx huma.Context, next func(huma.Context)) {
	if s := ctx.Operation().Security; s != nil && len(s) == 0 {
		next(ctx)
		return
	}
	claims, err := a.claims(ctx.Header("Authorization"))
	if err == nil {
		of(ctx.Context()).subject = claims.Subject
		err = permitted(ctx, claims)
	}
	if err != nil {
		r, w := humachi.Unwrap(ctx)
		writeProblem(w, control.NewProblem(code.From(err), requestID(r.Context())))
		return
	}
	next(huma.WithValue(ctx, claimsKey{}, claims))
}

func (a *API) claims(header string) (*token.Claims, error) {
	scheme, tok, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, code.New(code.Unauthenticated, "the request carries no token")
	}
	claims, err := a.cfg.Issuer.Verify(tok)
	switch {
	case err == nil:
		return claims, nil
	case errors.Is(err, token.ErrExpired):
		return nil, code.New(code.Unauthenticated, "the token has expired")
	}
	return nil, code.New(code.Unauthenticated, "the token is not valid")
}

// permitted checks the names in the path, as the handler will see them, and the permission on what they address. Where the
// path ends at a collection, the handler checks each thing in it.
func permitted(ctx huma.Context, claims *token.Claims) error {
	if ctx.Operation().Metadata[nodeResource] != nil {
		return mayManage(claims, nodeResource)
	}
	tenant, namespace, name := ctx.Param("tenant"), ctx.Param("namespace"), ctx.Param("name")
	named := strings.Contains(ctx.Operation().Path, "{name}")
	for _, level := range []struct {
		what, value string
		there       bool
	}{{"tenant", tenant, true}, {"namespace", namespace, true}, {"name", name, named}} {
		if level.there && !control.ValidName(level.value) {
			return code.New(code.BadRequest, "%s %.100q is not a name: %s", level.what, level.value, control.NameRule)
		}
	}
	if named {
		return mayManage(claims, control.FullName(tenant, namespace, name))
	}
	if !claims.AllowsSome(token.Manage, tenant, namespace) {
		return denied(control.FullName(tenant, namespace, "*"))
	}
	return nil
}

func mayManage(claims *token.Claims, resource string) error {
	if claims.Allows(token.Manage, resource) {
		return nil
	}
	return denied(resource)
}

func denied(resource string) error {
	if resource == nodeResource {
		return code.New(code.PermissionDenied, "the token does not grant manage on the node")
	}
	return code.New(code.PermissionDenied, "the token does not grant manage on %.200q", resource)
}
