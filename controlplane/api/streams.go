// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

const (
	streamsPath = "/v1/tenants/{tenant}/namespaces/{namespace}/streams"
	streamPath  = streamsPath + "/{name}"
)

// The library fills in embedded structs only if they are exported.

// NamespaceInput is the path of a collection.
type NamespaceInput struct {
	Tenant    string `path:"tenant" doc:"Tenant" example:"default"`
	Namespace string `path:"namespace" doc:"Namespace" example:"default"`
}

// StreamInput is the path of a stream.
type StreamInput struct {
	NamespaceInput
	Name string `path:"name" doc:"Stream" example:"orders"`
}

func (in *StreamInput) key() catalog.Name {
	return catalog.Name{Tenant: in.Tenant, Namespace: in.Namespace, Name: in.Name}
}

type createStreamInput struct {
	NamespaceInput
	Body control.StreamSpec
}

type listStreamsInput struct {
	NamespaceInput
	Cursor string `query:"cursor" doc:"From the page before" maxLength:"200"`
	Limit  int    `query:"limit" doc:"Streams a page" minimum:"1" maximum:"1000" default:"100"`
}

// Precondition is the header with which a change is made only to the version that the caller has seen.
type Precondition struct {
	IfMatch string `header:"If-Match" doc:"The ETag that the stream must still have" maxLength:"200"`
}

type updateStreamInput struct {
	StreamInput
	Precondition
	Body control.StreamPatch
}

type deleteStreamInput struct {
	StreamInput
	Precondition
}

type streamOutput struct {
	ETag string `header:"ETag" doc:"Names this version of the stream"`
	Body control.Stream
}

type listStreamsOutput struct {
	Body control.StreamList
}

func output(l *control.Log) *streamOutput {
	return &streamOutput{ETag: control.ETag(l.Version), Body: control.NewStream(l)}
}

func (a *API) registerStreams() {
	tags := []string{"streams"}
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "list-streams", Method: http.MethodGet, Path: streamsPath, Tags: tags,
		Summary: "List streams", Description: "In order of name, those that the token may manage.",
	}), a.listStreams)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "create-stream", Method: http.MethodPost, Path: streamsPath, DefaultStatus: http.StatusCreated, Tags: tags,
		Summary:     "Create a stream",
		Description: "Asking for the same stream again gives the same answer; asking for another of its name is `already_exists`, with the differences.",
	}), a.createStream)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "get-stream", Method: http.MethodGet, Path: streamPath, Tags: tags, Summary: "Get a stream",
	}), a.getStream)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "update-stream", Method: http.MethodPatch, Path: streamPath, Tags: tags,
		Summary: "Change a stream", Description: "Changes what the body names and nothing else.",
	}), a.updateStream)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "delete-stream", Method: http.MethodDelete, Path: streamPath, DefaultStatus: http.StatusNoContent, Tags: tags,
		Summary: "Delete a stream", Description: "And its records. A stream created later under the name has another id and begins empty.",
	}), a.deleteStream)
}

func (a *API) createStream(ctx context.Context, in *createStreamInput) (*streamOutput, error) {
	// A name that makes no sense is told together with everything else that does not; nothing hangs on who may use it.
	if control.ValidName(in.Body.Name) {
		if err := mayManage(claimsOf(ctx), control.FullName(in.Tenant, in.Namespace, in.Body.Name)); err != nil {
			return nil, a.fail(ctx, err)
		}
	}
	l, _, err := a.cfg.Streams.Create(ctx, in.Tenant, in.Namespace, in.Body)
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	return output(&l), nil
}

func (a *API) getStream(ctx context.Context, in *StreamInput) (*streamOutput, error) {
	l, err := a.cfg.Streams.Get(ctx, in.key())
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	return output(&l), nil
}

// listStreams fills its page from as many of the store's as it takes: what the token may not manage is not counted.
func (a *API) listStreams(ctx context.Context, in *listStreamsInput) (*listStreamsOutput, error) {
	after, err := parseCursor(in.Cursor)
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	claims := claimsOf(ctx)
	out := &listStreamsOutput{Body: control.StreamList{Items: []control.Stream{}}}
	for {
		page, err := a.cfg.Streams.List(ctx, in.Tenant, in.Namespace, after, in.Limit+1)
		if err != nil {
			return nil, a.fail(ctx, err)
		}
		for i := range page {
			if !claims.Allows(token.Manage, page[i].FullName()) {
				continue
			}
			if len(out.Body.Items) == in.Limit {
				out.Body.Next = cursor(out.Body.Items[in.Limit-1].Name)
				return out, nil
			}
			out.Body.Items = append(out.Body.Items, control.NewStream(&page[i]))
		}
		if len(page) <= in.Limit {
			return out, nil
		}
		after = page[len(page)-1].Name
	}
}

func (a *API) updateStream(ctx context.Context, in *updateStreamInput) (*streamOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	l, err := a.cfg.Streams.Update(ctx, in.key(), version, in.Body)
	if err != nil {
		return nil, a.stale(ctx, err)
	}
	return output(&l), nil
}

func (a *API) deleteStream(ctx context.Context, in *deleteStreamInput) (*struct{}, error) {
	version, err := in.version()
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	if err := a.cfg.Streams.Delete(ctx, in.key(), version); err != nil {
		return nil, a.stale(ctx, err)
	}
	return nil, nil
}

// stale is fail, with the status that HTTP has for a version that is no more.
func (a *API) stale(ctx context.Context, err error) error {
	out := a.fail(ctx, err)
	var f *failure
	if errors.As(out, &f) && errors.Is(err, catalog.ErrVersion) {
		return f.status(http.StatusPreconditionFailed)
	}
	return out
}

// version is the version to change, 0 for any. A tag that cannot be one of ours can match nothing: it is refused, lest a
// typing mistake turn a careful change into a careless one.
func (p *Precondition) version() (uint64, error) {
	s := strings.TrimSpace(p.IfMatch)
	if s == "" || s == "*" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(s, `"`)
	if digits, ok2 := strings.CutSuffix(digits, `"`); ok && ok2 {
		if v, err := strconv.ParseUint(digits, 10, 64); err == nil && v > 0 && control.ETag(v) == s {
			return v, nil
		}
	}
	return 0, code.New(code.BadRequest, "If-Match %.50q is not an ETag of a stream", s)
}

func cursor(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

func parseCursor(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || !control.ValidName(string(b)) {
		return "", code.New(code.BadRequest, "the cursor is not one that a page before gave")
	}
	return string(b), nil
}
