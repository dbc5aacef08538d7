// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"
	"time"
)

// profileWithin bounds a profile, and how long its answer may take.
const profileWithin = 5 * time.Minute

// How densely waiting is sampled: one event for each so many nanoseconds spent blocked, one in so many contentions
// of a lock. Both cost little at this, and nothing while nobody asks.
const (
	blockRate = 10_000
	mutexRate = 10
)

// sampling turns a sampler of the whole process on for as long as a profile of it is taken, for one at a time.
type sampling struct{ busy sync.Mutex }

// during serves a profile whose sampler is off but for that. Without seconds there would be nothing in it.
func (s *sampling) during(turn func(on bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("seconds") == "" {
			http.Error(w, "say for how many ?seconds= to take it", http.StatusBadRequest)
			return
		}
		if !s.busy.TryLock() {
			http.Error(w, "another such profile is being taken", http.StatusConflict)
			return
		}
		defer s.busy.Unlock()
		turn(true)
		defer turn(false)
		pprof.Index(w, r)
	}
}

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
	var blocking, contention sampling
	handle("/debug/pprof/block", blocking.during(func(on bool) {
		rate := 0
		if on {
			rate = blockRate
		}
		runtime.SetBlockProfileRate(rate)
	}))
	handle("/debug/pprof/mutex", contention.during(func(on bool) {
		rate := 0
		if on {
			rate = mutexRate
		}
		runtime.SetMutexProfileFraction(rate)
	}))
	handle("/debug/pprof/cmdline", pprof.Cmdline)
	handle("/debug/pprof/profile", pprof.Profile)
	handle("/debug/pprof/symbol", pprof.Symbol)
	handle("/debug/pprof/trace", pprof.Trace)
}
