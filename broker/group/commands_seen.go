// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"slices"

	"margay.dev/wire/batch"
)

// commands are the ids of commands that were applied, so that one that comes again is not.
type commands struct {
	seen  map[[16]byte]batch.Command
	order [][16]byte // as they came; the times rise
}

func newCommands() commands { return commands{seen: map[[16]byte]batch.Command{}} }

func (c *commands) put(u *undoLog, e batch.Command) {
	c.seen[e.ID] = e
	c.order = append(c.order, e.ID)
	u.note(nil, func() {
		delete(c.seen, e.ID)
		c.order = c.order[:len(c.order)-1]
	})
}

// room says whether another may come, at an append time. What is too old to be remembered goes, and what is not so old when
// there are very many.
func (c *commands) room(at int64) bool {
	n := 0
	for n < len(c.order) {
		age := at - c.seen[c.order[n]].At
		if age <= CommandKept && (len(c.order)-n < MaxCommands || age <= commandLeast) {
			break
		}
		delete(c.seen, c.order[n])
		n++
	}
	c.order = slices.Delete(c.order, 0, n)
	return len(c.order) < MaxCommands
}

func (c *commands) entries() (out []batch.Entry) {
	for _, id := range c.order {
		out = append(out, c.seen[id])
	}
	return out
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }
