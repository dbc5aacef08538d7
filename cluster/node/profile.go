// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"net/http/pprof"
	"time"
)

// profileWithin bounds a profile, and how long its answer may take.
const profileWithin = 5 * time.Minute

// profiles serves what net/http/pprof has, to who may manage the node: a profile tells what passes through it.
func (n *node) profiles(mux *http.ServeMux) {
	handle := func(path string, h http.HandlerFunc) {
		mux.Handle("GET "+path, n.authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A profile of a minute is written behind it, and the server's own deadline is made for answers.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileWithin)) // else the server's holds
			h(w, r)
		})))
	}
	handle("/debug/pprof/", pprof.Index)
	handle("/debug/pprof/cmdline", pprof.Cmdline)
	handle("/debug/pprof/profile", pprof.Profile)
	handle("/debug/pprof/symbol", pprof.Symbol)
	handle("/debug/pprof/trace", pprof.Trace)
}
