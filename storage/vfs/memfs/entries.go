// SPDX-License-Identifier: Apache-2.0

package memfs

import (
	"errors"
	"slices"
)

var (
	errNotDir   = errors.New("not a directory")
	errIsDir    = errors.New("is a directory")
	errNotEmpty = errors.New("directory not empty")
	errRoot     = errors.New("is the root")
)

// entry sets one name of a directory; a nil node removes it.
type entry struct {
	dir  *directory
	name string
	node *node
}

// change is a run of steps on names that depend on each other: a name made, then renamed, then removed. A power cut
// leaves some first part of it. Each step holds the entries that change together: one, or two for a rename.
type change struct{ steps [][]entry }

func (c *change) touches(e entry) bool {
	for _, step := range c.steps {
		for _, have := range step {
			if have.dir == e.dir && have.name == e.name {
				return true
			}
		}
	}
	return false
}

func (c *change) touchesDir(d *directory) bool {
	for _, step := range c.steps {
		for _, have := range step {
			if have.dir == d {
				return true
			}
		}
	}
	return false
}

// change applies a step to what readers see and notes it as not yet durable.
func (m *FS) change(step ...entry) {
	merged := &change{}
	m.pending = slices.DeleteFunc(m.pending, func(c *change) bool {
		if !slices.ContainsFunc(step, c.touches) {
			return false
		}
		merged.steps = append(merged.steps, c.steps...)
		return true
	})
	merged.steps = append(merged.steps, step)
	m.pending = append(m.pending, merged)
	for _, e := range step {
		if e.node != nil {
			e.node.links++ // before the old names go, or a rename would give the blocks back
		}
	}
	for _, e := range step {
		old := e.dir.entries[e.name]
		persist([]entry{e}, (*directory).seen)
		if old != nil {
			old.links--
			m.recount(old)
		}
	}
}

// recount sets what the file takes of the capacity: nothing once nobody can reach it any more.
func (m *FS) recount(n *node) {
	if n.file == nil {
		return
	}
	now := int64(0)
	if n.links > 0 || n.opens > 0 {
		now = n.file.blocksTaken() * blockSize
	}
	m.used += now - n.file.counted
	n.file.counted = now
}

// syncDir makes every change that touches d durable. A rename between two directories is one change, so flushing
// either of them keeps both of its halves.
func (m *FS) syncDir(d *directory) {
	m.pending = slices.DeleteFunc(m.pending, func(c *change) bool {
		if !c.touchesDir(d) {
			return false
		}
		for _, step := range c.steps {
			persist(step, (*directory).kept)
		}
		return true
	})
}

func (d *directory) seen() map[string]*node { return d.entries }
func (d *directory) kept() map[string]*node { return d.durable }

// persist applies a step to one of the views of a directory.
func persist(step []entry, view func(*directory) map[string]*node) {
	for _, e := range step {
		if e.node == nil {
			delete(view(e.dir), e.name)
		} else {
			view(e.dir)[e.name] = e.node
		}
	}
}
