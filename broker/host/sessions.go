// SPDX-License-Identifier: Apache-2.0

package host

import (
	"sync"

	"margay.dev/broker/shard"
)

// Sessions knows which sessions with a last record are connected here, and by whom. A shard that is opened anew under its
// clients asks it: they have noticed nothing and will not show themselves again.
type Sessions struct {
	mu      sync.Mutex
	byShard map[Ref]map[uint64]any
}

// Claim makes owner the one who answers for a session; the newest who spoke for it does.
func (s *Sessions) Claim(ref Ref, id uint64, owner any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byShard == nil {
		s.byShard = map[Ref]map[uint64]any{}
	}
	if s.byShard[ref] == nil {
		s.byShard[ref] = map[uint64]any{}
	}
	s.byShard[ref][id] = owner
}

// Release ends what Claim began and says whether the session was still the owner's: what has moved to another connection
// does not end with this one.
func (s *Sessions) Release(ref Ref, id uint64, owner any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byShard[ref][id] != owner {
		return false
	}
	delete(s.byShard[ref], id)
	if len(s.byShard[ref]) == 0 {
		delete(s.byShard, ref)
	}
	return true
}

// greet tells a fresh core which of its sessions are here.
func (s *Sessions) greet(ref Ref, now int64, core *shard.Core, eff *shard.Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.byShard[ref] {
		core.Step(now, shard.LastAlive{ID: id}, eff)
	}
}
