// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"margay.dev/controlplane/logs"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// failure is an error on its way out: a problem document without the request's id yet.
type failure struct{ doc *control.ProblemDocument }

// GetStatus, ContentType and GetHeaders are how huma asks.
func (f *failure) GetStatus() int            { return f.doc.Status }
func (f *failure) Error() string             { return f.doc.Detail }
func (f *failure) ContentType(string) string { return control.ProblemType }

func (f *failure) GetHeaders() http.Header {
	h := http.Header{}
	setHeaders(h, f.doc)
	return h
}

func setHeaders(h http.Header, doc *control.ProblemDocument) {
	if doc.RetryAfter != nil {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(time.Duration(*doc.RetryAfter).Seconds()))))
	}
	if doc.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="margay"`)
	}
}

// fail makes the answer to an error. What nobody foresaw goes into the log under the request's id and not to the caller:
// it may name files or hold what another tenant sent.
func (a *API) fail(ctx context.Context, err error) error {
	var invalid *logs.InvalidError
	e := code.From(logs.Coded(err))
	f := &failure{doc: control.NewProblem(e, "")}
	switch {
	case errors.As(err, &invalid):
		f.doc.Detail, f.doc.Errors = invalid.What, invalid.Problems
		if e.Code == code.BadRequest {
			return f.status(http.StatusUnprocessableEntity)
		}
	case e.Code == code.Internal || e.Code == code.OutcomeUnknown || e.Code == code.StorageFull:
		a.cfg.Logger.Error("request failed", "request", requestID(ctx), "error", err)
		if e.Code == code.Internal {
			e = internal()
		} else {
			e = code.New(e.Code, "the catalog could not store the change")
		}
		f.doc = control.NewProblem(e, "")
	}
	return f
}

func (f *failure) status(status int) *failure {
	f.doc.Status, f.doc.Title = status, http.StatusText(status)
	return f
}

func internal() *code.Error {
	return code.New(code.Internal, "the request failed in a way that nobody foresaw; the server's log has the reason under its id")
}

// problems turns every error, ours and those of the library, into the one form, under the id of its request. The library
// repeats the value that it refused, which may be a secret: that is left out.
func (a *API) problems(ctx huma.Context, _ string, v any) (any, error) {
	var doc control.ProblemDocument
	switch e := v.(type) {
	case *failure:
		doc = *e.doc
	case *huma.ErrorModel:
		doc = *fromLibrary(e)
	default:
		return v, nil
	}
	doc.RequestID = requestID(ctx.Context())
	return &doc, nil
}

func fromLibrary(e *huma.ErrorModel) *control.ProblemDocument {
	c := code.BadRequest
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		c = code.TooLarge
	case http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		c = code.Unsupported
	case http.StatusRequestTimeout:
		c = code.Timeout
	}
	detail := e.Detail
	if e.Status >= 500 {
		c, detail = code.Internal, internal().Message
	}
	doc := control.NewProblem(code.New(c, "%s", detail), "")
	doc.Status, doc.Title = e.Status, http.StatusText(e.Status)
	if e.Status < 500 {
		for _, d := range e.Errors {
			doc.Errors = append(doc.Errors, control.Problem{Path: strings.TrimPrefix(d.Location, "body."), Message: d.Message})
		}
	}
	return doc
}

// writeProblem answers where the library is not asked.
func writeProblem(w http.ResponseWriter, doc *control.ProblemDocument) {
	b, err := json.Marshal(doc)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	setHeaders(w.Header(), doc)
	w.Header().Set("Content-Type", control.ProblemType)
	w.WriteHeader(doc.Status)
	_, _ = w.Write(b) // whoever asked has gone
}
