// SPDX-License-Identifier: Apache-2.0

// Package api is the REST API of the control plane, with the OpenAPI document made from the very handlers; it serves
// HTTP and works on what it is given, and refuses every request without a permission, but for the exchange of an API
// key and that document.
package api

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"margay.dev/controlplane/identity"
	"margay.dev/controlplane/logs"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// maxBody bounds a request's body, in bytes; maxPath its path.
const (
	maxBody = 64 << 10
	maxPath = 2 << 10
)

// OpenAPIPath is where the description of the API is.
const OpenAPIPath = "/openapi.json"

// Config is what the API works on. All fields but Level and Status are required.
type Config struct {
	Logs   *logs.Service
	Issuer *identity.Issuer
	Wall   func() time.Time
	Logger *slog.Logger
	Level  *slog.LevelVar        // of Logger; nil: there is no operation to change it
	Status func() control.Status // of the node; nil: there is no operation to ask
}

// API is the handler. Router and Describe are for whoever wants to compare the two.
type API struct {
	cfg    Config
	logins *limiter
	router *chi.Mux
	huma   huma.API
	served http.Handler
}

// New makes the API.
func New(cfg Config) (*API, error) {
	a := &API{cfg: cfg, logins: newLimiter(), router: chi.NewMux()}
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, control.NewProblem(code.New(code.NotFound, "there is no %.200q", r.URL.Path), requestID(r.Context())))
	})
	a.router.MethodNotAllowed(a.methodNotAllowed)
	a.huma = humachi.New(a.router, a.config())
	a.huma.UseMiddleware(a.authenticate)
	a.registerTokens()
	a.registerLogs()
	a.registerLogLevel()
	a.registerStatus()
	// The library registers its own error model beside ours, which nothing refers to.
	delete(a.huma.OpenAPI().Components.Schemas.Map(), "ErrorModel")
	doc, err := a.huma.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("describe API: %w", err)
	}
	a.router.Get(OpenAPIPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(doc) // whoever asked has gone
	})
	a.served = a.surround(a.router)
	return a, nil
}

// ServeHTTP serves one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.served.ServeHTTP(w, r) }

func (a *API) config() huma.Config {
	cfg := huma.DefaultConfig("Margay control plane", "v1")
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", "" // served above; the library's page would load a script from a CDN
	cfg.CreateHooks = nil                                       // no $schema in bodies
	cfg.RejectUnknownQueryParameters = true
	cfg.Formats = map[string]huma.Format{"application/json": strictJSON(), "json": strictJSON()}
	cfg.Transformers = []huma.Transformer{a.problems}
	cfg.Info.Description = "Every request needs `Authorization: Bearer` with a token from `POST /v1/token`, but for that one and this document."
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT"}}
	cfg.Security = []map[string][]string{{"token": {}}}
	return cfg
}

// operation fills in what all operations share. An operation is open only if it says so itself.
func (a *API) operation(op huma.Operation) huma.Operation {
	problem := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[control.ProblemDocument](), true, "")
	op.Responses = map[string]*huma.Response{"default": {
		Description: "A problem document (RFC 9457) with a stable code",
		Content:     map[string]*huma.MediaType{control.ProblemType: {Schema: problem}},
	}}
	op.MaxBodyBytes = maxBody
	return op
}

func (a *API) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
		if a.router.Match(chi.NewRouteContext(), m, path) {
			allowed = append(allowed, m)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	p := control.NewProblem(code.New(code.Unsupported, "%.20q is no method of this path: use %s", r.Method, strings.Join(allowed, " or ")), requestID(r.Context()))
	p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
	writeProblem(w, p)
}

// Routes lists what the router serves, as "METHOD /path".
func (a *API) Routes() ([]string, error) {
	routes := map[string]bool{}
	err := chi.Walk(a.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes[method+" "+route] = true
		return nil
	})
	return slices.Sorted(maps.Keys(routes)), err
}
