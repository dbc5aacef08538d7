// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"margay.dev/wire/code"
)

// profilePath is where a node serves the profiles of Go's net/http/pprof.
const profilePath = "/debug/pprof/"

// Profiles names what a node can be profiled for, and the path under which its HTTP address has it.
func Profiles() []string {
	return []string{"cpu", "heap", "allocs", "block", "mutex", "goroutine", "trace"}
}

// Profile takes a profile of the node over d and returns it, in the form that `go tool pprof` reads (a trace: that
// `go tool trace` reads). Heap, allocs and goroutine with d 0 are the state, else what changed within d.
func (c *Client) Profile(ctx context.Context, kind string, d time.Duration) ([]byte, error) {
	if !slices.Contains(Profiles(), kind) {
		return nil, code.New(code.BadRequest, "a node has no profile %q", kind)
	}
	path := profilePath + kind
	if kind == "cpu" {
		path = profilePath + "profile"
	}
	if d > 0 {
		path += "?" + url.Values{"seconds": {strconv.Itoa(max(1, int(d.Seconds())))}}.Encode()
	}
	// The answer comes when the profile is over: that is no silence.
	patient := &Client{base: c.base, cfg: c.cfg, http: c.http}
	patient.cfg.Timeout += d
	patient.cached.Store(c.cached.Load())
	var b []byte
	return b, patient.do(ctx, http.MethodGet, path, "", nil, &b)
}
