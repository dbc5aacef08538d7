// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"sync"

	"margay.dev/controlplane/catalog"
)

// changes tells everybody who waits that the catalog has reached a version.
type changes struct {
	mu      sync.Mutex
	version uint64
	next    chan struct{} // closed at the next change; a new one then takes its place
	closed  bool
}

func newChanges(version uint64) *changes {
	return &changes{version: version, next: make(chan struct{})}
}

// reached is called after a commit, not in it: two commits may arrive in the wrong order, the higher version counts.
func (c *changes) reached(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version <= c.version || c.closed {
		return
	}
	c.version = version
	close(c.next)
	c.next = make(chan struct{})
}

func (c *changes) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.next)
	}
}

// wait asks stored, the version in the file, only when the one it knows of is behind what the caller has seen: a snapshot
// may show a commit that has not come to reached yet.
func (c *changes) wait(ctx context.Context, after uint64, stored func() (uint64, error)) (uint64, error) {
	for first := true; ; first = false {
		c.mu.Lock()
		version, next, closed := c.version, c.next, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return 0, fmt.Errorf("wait for catalog version above %d: %w", after, catalog.ErrClosed)
		case version > after:
			return version, nil
		case first && version < after:
			version, err := stored()
			if err != nil {
				return 0, err
			}
			if version < after {
				return 0, fmt.Errorf("wait for catalog version above %d: %w: the catalog is at %d, so it was put back from an older copy", after, catalog.ErrVersion, version)
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
