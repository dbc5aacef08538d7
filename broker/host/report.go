// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"maps"
	"slices"

	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// State is how a shard that this broker leads stands.
type State uint8

// The states, the sound one first.
const (
	Open        State = iota
	Opening           // its log is being read
	Waiting           // it failed and is opened again after a while
	NoRoom            // no descriptor is left for its log
	Quarantined       // its data is damaged: it stays closed
	states
)

var stateNames = [states]string{"open", "opening", "waiting", "no_room", "quarantined"}

// String names the state as metrics and the status spell it.
func (s State) String() string { return stateNames[s] }

// Unwell is a shard that is not open.
type Unwell struct {
	Ref    Ref
	Log    string // its full name
	State  State
	Reason string
}

// Report is the host's health, for readiness and status.
type Report struct {
	Ready       bool
	Shards      [states]int // by State
	Unwell      []Unwell    // the worst first
	Quarantined map[Ref]string
	DiskFull    bool
	Free        uint64 // bytes of the disk
	Reserve     uint64 // below which records are refused
	Unknown     int    // shard directories that the catalog does not know; kept
}

// Report returns the host's health. It looks at the disk: others may have filled it.
func (h *Host) Report() Report {
	h.space.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.report
	r.Quarantined = maps.Clone(r.Quarantined)
	r.DiskFull = h.space.isFull.Load()
	r.Free, r.Reserve = uint64(max(h.space.free.Load(), 0)), h.space.reserve
	return r
}

// setReport notes how things stand.
func (h *Host) setReport(want map[Ref]*control.Log) {
	r := Report{Ready: h.snapshot.Version > 0, Quarantined: map[Ref]string{}, Unknown: h.unknown()}
	for ref, err := range h.damaged {
		r.Quarantined[ref] = h.faultText(err)
	}
	for ref, l := range want {
		state, reason := h.stateOf(ref)
		r.Shards[state]++
		if state != Open {
			r.Unwell = append(r.Unwell, Unwell{ref, l.FullName(), state, reason})
		}
		if state != Open && state != Quarantined {
			r.Ready = false
		}
	}
	slices.SortFunc(r.Unwell, func(a, b Unwell) int {
		return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Ref.Shard, b.Ref.Shard))
	})
	for i, g := range h.metrics.shards {
		g.Set(float64(r.Shards[i]))
	}
	h.metrics.unknown.Set(float64(r.Unknown))
	if r.Unknown > 0 && r.Unknown != h.strangers {
		h.log.Warn("there are shards on the disk that the catalog does not know: they are kept and not served", "shards", r.Unknown)
	}
	h.strangers = r.Unknown
	open := slices.Collect(maps.Values(h.shards))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report, h.led = r, open
	if h.snapshot.Version > h.applied && len(h.opening) == 0 {
		h.applied = h.snapshot.Version
		close(h.moved)
		h.moved = make(chan struct{})
	}
}

func (h *Host) stateOf(ref Ref) (State, string) {
	retry, failed := h.retry[ref]
	switch err := h.damaged[ref]; {
	case h.shards[ref] != nil:
		return Open, ""
	case err != nil:
		return Quarantined, h.faultText(err)
	case retry.noRoom != "" && !h.opening[ref]:
		return NoRoom, retry.noRoom
	case failed && !h.opening[ref]:
		return Waiting, retry.why
	}
	return Opening, "its log is being read"
}

// unknown counts the shard directories that the catalog does not know.
func (h *Host) unknown() (n int) {
	known := map[batch.LogID]bool{}
	for i := range h.snapshot.Logs {
		known[h.snapshot.Logs[i].ID] = true
	}
	dirs, err := h.cfg.Dir.List()
	if err != nil {
		return 0
	}
	for _, d := range dirs {
		if !known[d.Log] {
			n++
		}
	}
	return n
}

// Shards are those that are open, as of the last change.
func (h *Host) Shards() []*Shard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.led // never changed, only replaced
}

// queued is what waits in the inboxes of the shards.
func (h *Host) queued() (requests, bytes int) {
	h.mu.Lock()
	open := h.led
	h.mu.Unlock()
	for _, s := range open {
		s.mu.Lock()
		requests += len(s.inbox) + len(s.events)
		bytes += s.bytes
		s.mu.Unlock()
	}
	return requests, bytes
}

// remembered is how many cursors and last records the open shards keep.
func (h *Host) remembered() (cursors, lasts int) {
	h.mu.Lock()
	open := h.led
	h.mu.Unlock()
	for _, s := range open {
		v := s.View()
		cursors += v.Cursors
		lasts += v.Lasts
	}
	return cursors, lasts
}
