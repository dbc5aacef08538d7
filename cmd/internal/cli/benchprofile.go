// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"margay.dev/cluster/load"
	"margay.dev/wire/control"
)

// The phases of a run that its figures, and its profiles, are of.
const (
	phaseMeasuring = "measuring"
	phaseReplaying = "replaying"
	phaseWorking   = "working off"
)

// benchProfiles takes profiles of a node while it is measured. The zero value takes none.
type benchProfiles struct {
	dir    string
	client *control.Client
	within time.Duration // how long they take

	once sync.Once
	done sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// benchProfiles prepares to profile the node that is measured into the directory.
func (a *app) benchProfiles(f *benchFlags, t *benchTarget) (*benchProfiles, error) {
	if f.profile == "" {
		return &benchProfiles{}, nil
	}
	if err := os.MkdirAll(f.profile, 0o700); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	c, err := a.rest(&target{Context: t.cfg.Context, token: t.cfg.Token})
	if err != nil {
		return nil, err
	}
	// Over before the run is, so that what they show is the load. One that ends by count may be short.
	within := max(f.spec.Duration*3/4, time.Second)
	if f.spec.Messages > 0 || f.spec.Workload == load.Sub || f.spec.Workload == load.Work {
		within = time.Second
	}
	return &benchProfiles{dir: f.profile, client: c, within: min(within, maxProfile*time.Second)}, nil
}

// watch begins once the run measures.
func (p *benchProfiles) watch(ctx context.Context, now load.Progress) {
	if p.dir == "" || now.Phase != phaseMeasuring && now.Phase != phaseReplaying && now.Phase != phaseWorking {
		return
	}
	p.once.Do(func() {
		for _, kind := range []string{"cpu", "allocs", "block", "mutex"} {
			p.done.Go(func() {
				b, err := p.client.Profile(ctx, kind, p.within)
				if err == nil {
					err = os.WriteFile(filepath.Join(p.dir, kind+".pprof"), b, 0o600)
				}
				if err != nil {
					p.mu.Lock()
					p.errs = append(p.errs, fmt.Errorf("profile %s: %w", kind, err))
					p.mu.Unlock()
				}
			})
		}
	})
}

// close waits for them.
func (p *benchProfiles) close() error {
	p.done.Wait()
	if p.client != nil {
		p.client.Close()
	}
	return errors.Join(p.errs...)
}
