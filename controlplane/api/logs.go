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

const namespacePath = "/v1/tenants/{tenant}/namespaces/{namespace}"

// The library fills in embedded structs only if they are exported.

// NamespaceInput is the path of a collection.
type NamespaceInput struct {
	Tenant    string `path:"tenant" doc:"Tenant" example:"default"`
	Namespace string `path:"namespace" doc:"Namespace" example:"default"`
}

// LogInput is the path of a log.
type LogInput struct {
	NamespaceInput
	Name string `path:"name" doc:"Name" example:"orders"`
}

func (in *LogInput) key() catalog.Name {
	return catalog.Name{Tenant: in.Tenant, Namespace: in.Namespace, Name: in.Name}
}

type createInput[Spec any] struct {
	NamespaceInput
	Body Spec
}

type listInput struct {
	NamespaceInput
	Cursor string `query:"cursor" doc:"From the page before" maxLength:"200"`
	Limit  int    `query:"limit" doc:"Entries a page" minimum:"1" maximum:"1000" default:"100"`
}

// Precondition is the header with which a change is made only to the version that the caller has seen.
type Precondition struct {
	IfMatch string `header:"If-Match" doc:"The ETag that what is changed must still have" maxLength:"200"`
}

type updateInput[Patch any] struct {
	LogInput
	Precondition
	Body Patch
}

type deleteInput struct {
	LogInput
	Precondition
}

type logOutput[Doc any] struct {
	ETag string `header:"ETag" doc:"Names this version"`
	Body Doc
}

type listOutput[List any] struct {
	Body List
}

// collection is the logs of one preset, with the types that its documents have.
type collection[Spec, Patch, Doc, List any] struct {
	api    *API
	preset string
	spec   func(Spec) control.LogSpec
	patch  func(Patch) control.LogPatch
	show   func(*control.Log) Doc
	list   func(items []Doc, next string) List
}

func (a *API) registerLogs() {
	collection[control.StreamSpec, control.StreamPatch, control.Stream, control.StreamList]{
		api: a, preset: control.PresetStream,
		spec:  func(s control.StreamSpec) control.LogSpec { return control.LogSpec(s) },
		patch: func(p control.StreamPatch) control.LogPatch { return control.LogPatch(p) },
		show:  control.NewStream,
		list: func(items []control.Stream, next string) control.StreamList {
			return control.StreamList{Items: items, Next: next}
		},
	}.register()
	collection[control.CacheSpec, control.CachePatch, control.Cache, control.CacheList]{
		api: a, preset: control.PresetCache,
		spec:  func(s control.CacheSpec) control.LogSpec { return control.LogSpec(s) },
		patch: func(p control.CachePatch) control.LogPatch { return control.LogPatch(p) },
		show:  control.NewCache,
		list: func(items []control.Cache, next string) control.CacheList {
			return control.CacheList{Items: items, Next: next}
		},
	}.register()
	collection[control.QueueSpec, control.QueuePatch, control.Queue, control.QueueList]{
		api: a, preset: control.PresetQueue,
		spec:  func(s control.QueueSpec) control.LogSpec { return control.LogSpec(s) },
		patch: func(p control.QueuePatch) control.LogPatch { return control.LogPatch(p) },
		show:  control.NewQueue,
		list: func(items []control.Queue, next string) control.QueueList {
			return control.QueueList{Items: items, Next: next}
		},
	}.register()
}

func (k collection[Spec, Patch, Doc, List]) register() {
	one, many := k.preset, k.preset+"s"
	tags, all := []string{many}, namespacePath+"/"+many
	path := all + "/{name}"
	a := k.api
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "list-" + many, Method: http.MethodGet, Path: all, Tags: tags,
		Summary: "List " + many, Description: "In order of name, those that the token may manage.",
	}), k.listLogs)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "create-" + one, Method: http.MethodPost, Path: all, DefaultStatus: http.StatusCreated, Tags: tags,
		Summary: "Create a " + one,
		Description: "Asking for the same " + one + " again gives the same answer; asking for another of its name is `already_exists`, with the differences. " +
			"A name is unique in its namespace among streams, caches and queues together.",
	}), k.create)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "get-" + one, Method: http.MethodGet, Path: path, Tags: tags, Summary: "Get a " + one,
	}), k.get)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "update-" + one, Method: http.MethodPatch, Path: path, Tags: tags,
		Summary: "Change a " + one, Description: "Changes what the body names and nothing else.",
	}), k.update)
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "delete-" + one, Method: http.MethodDelete, Path: path, DefaultStatus: http.StatusNoContent, Tags: tags,
		Summary: "Delete a " + one, Description: "And its records. What is created later under the name has another id and begins empty.",
	}), k.remove)
}

func (k collection[Spec, Patch, Doc, List]) output(l *control.Log) *logOutput[Doc] {
	return &logOutput[Doc]{ETag: control.ETag(l.Version), Body: k.show(l)}
}

func (k collection[Spec, Patch, Doc, List]) create(ctx context.Context, in *createInput[Spec]) (*logOutput[Doc], error) {
	spec := k.spec(in.Body)
	// A name that makes no sense is told together with everything else that does not; nothing hangs on who may use it.
	if control.ValidName(spec.Name) {
		if err := mayManage(claimsOf(ctx), control.FullName(in.Tenant, in.Namespace, spec.Name)); err != nil {
			return nil, k.api.fail(ctx, err)
		}
	}
	l, _, err := k.api.cfg.Logs.Create(ctx, k.preset, in.Tenant, in.Namespace, spec)
	if err != nil {
		return nil, k.api.fail(ctx, err)
	}
	return k.output(&l), nil
}

func (k collection[Spec, Patch, Doc, List]) get(ctx context.Context, in *LogInput) (*logOutput[Doc], error) {
	l, err := k.api.cfg.Logs.Get(ctx, k.preset, in.key())
	if err != nil {
		return nil, k.api.fail(ctx, err)
	}
	return k.output(&l), nil
}

// listLogs fills its page from as many of the store's as it takes: what the token may not manage, and what is of another
// preset, is not counted.
func (k collection[Spec, Patch, Doc, List]) listLogs(ctx context.Context, in *listInput) (*listOutput[List], error) {
	after, err := parseCursor(in.Cursor)
	if err != nil {
		return nil, k.api.fail(ctx, err)
	}
	claims := claimsOf(ctx)
	items, last := []Doc{}, ""
	for {
		page, err := k.api.cfg.Logs.List(ctx, in.Tenant, in.Namespace, after, in.Limit+1)
		if err != nil {
			return nil, k.api.fail(ctx, err)
		}
		for i := range page {
			if page[i].Preset != k.preset || !claims.Allows(token.Manage, page[i].FullName()) {
				continue
			}
			if len(items) == in.Limit {
				return &listOutput[List]{Body: k.list(items, cursor(last))}, nil
			}
			items, last = append(items, k.show(&page[i])), page[i].Name
		}
		if len(page) <= in.Limit {
			return &listOutput[List]{Body: k.list(items, "")}, nil
		}
		after = page[len(page)-1].Name
	}
}

func (k collection[Spec, Patch, Doc, List]) update(ctx context.Context, in *updateInput[Patch]) (*logOutput[Doc], error) {
	version, err := in.version()
	if err != nil {
		return nil, k.api.fail(ctx, err)
	}
	l, err := k.api.cfg.Logs.Update(ctx, k.preset, in.key(), version, k.patch(in.Body))
	if err != nil {
		return nil, k.api.stale(ctx, err)
	}
	return k.output(&l), nil
}

func (k collection[Spec, Patch, Doc, List]) remove(ctx context.Context, in *deleteInput) (*struct{}, error) {
	version, err := in.version()
	if err != nil {
		return nil, k.api.fail(ctx, err)
	}
	if err := k.api.cfg.Logs.Delete(ctx, k.preset, in.key(), version); err != nil {
		return nil, k.api.stale(ctx, err)
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
	return 0, code.New(code.BadRequest, "If-Match %.50q is not an ETag of ours", s)
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
