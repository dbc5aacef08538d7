// SPDX-License-Identifier: Apache-2.0

package group

// undoLog takes back what was applied and is cut off. Nothing is kept of what is committed.
type undoLog struct {
	on       bool // while an entry is applied that may still be cut off
	sequence uint64
	steps    []undoStep // ascending by sequence
}

type undoStep struct {
	sequence uint64
	group    *Group // nil: it is not one group's
	back     func()
}

// note remembers how to take a change back.
func (u *undoLog) note(g *Group, back func()) {
	if u.on {
		u.steps = append(u.steps, undoStep{sequence: u.sequence, group: g, back: back})
	}
}

// commit forgets what lies below mark.
func (u *undoLog) commit(mark uint64) {
	n := 0
	for n < len(u.steps) && u.steps[n].sequence < mark {
		n++
	}
	if n > 0 {
		rest := copy(u.steps, u.steps[n:])
		clear(u.steps[rest:])
		u.steps = u.steps[:rest]
	}
}

// cut takes back what the batches from sequence at on said, and returns the groups that it concerned.
func (u *undoLog) cut(at uint64) map[*Group]bool {
	touched := map[*Group]bool{}
	n := len(u.steps)
	for n > 0 && u.steps[n-1].sequence >= at {
		n--
		step := &u.steps[n]
		step.back()
		if step.group != nil {
			touched[step.group] = true
		}
		*step = undoStep{}
	}
	u.steps = u.steps[:n]
	return touched
}
