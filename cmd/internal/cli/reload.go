// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"os"
	"sync/atomic"

	"margay.dev/cluster/node"
	"margay.dev/cmd/internal/config"
)

// serving is a node that runs: what it was started with, and what can change while it does.
type serving struct {
	log     *slog.Logger
	level   slog.LevelVar
	started *config.Result
	load    func() (*config.Result, error)
	ready   atomic.Pointer[node.Info]
}

func newServing(a *app, r *config.Result, load func() (*config.Result, error)) *serving {
	s := &serving{started: r, load: load}
	s.level.Set(slog.Level(r.Config.Log.Level))
	options := &slog.HandlerOptions{Level: &s.level}
	var handler slog.Handler = slog.NewTextHandler(a.Streams.Err, options)
	if r.Config.Log.Format == "json" {
		handler = slog.NewJSONHandler(a.Streams.Err, options)
	}
	s.log = slog.New(handler)
	return s
}

// hangups are the orders to reload.
func (a *app) hangups() (<-chan os.Signal, func()) {
	if a.Hangups == nil {
		return nil, func() {}
	}
	return a.Hangups()
}

// reload reads configuration and certificates again. What is wrong changes nothing: a node that runs must not be harmed
// by a typing mistake (OP-09). The level becomes the configured one, also when it was set otherwise meanwhile.
func (s *serving) reload() {
	s.reloadConfiguration()
	info := s.ready.Load()
	if info == nil {
		return // it is starting, and has just read them
	}
	renewed, err := info.ReloadCertificates()
	switch {
	case err != nil:
		s.log.Error("reload: the certificate on disk cannot be used; the one in use stays", "error", err)
	case renewed:
		s.log.Info("reload: new connections are given the new certificate")
	default:
		s.log.Info("reload: the certificate is the same")
	}
}

func (s *serving) reloadConfiguration() {
	r, err := s.load()
	if err != nil {
		s.log.Error("reload: the configuration is refused; what is in effect stays", "error", err)
		return
	}
	s.level.Set(slog.Level(r.Config.Log.Level))
	changes := config.Changes(s.started, r)
	restart := 0
	for _, c := range changes {
		if !c.Live {
			restart++
			s.log.Warn("reload: a setting takes effect at the next start", "key", c.Path, "in_effect", c.Old, "configured", c.New)
		}
	}
	s.log.Info("reload: the configuration was read", "log_level", r.Config.Log.Level.String(), "need_restart", restart)
}
