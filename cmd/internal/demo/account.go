// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"sync"

	"margay.dev/client"
)

// spot is where a record lies.
type spot struct {
	shard  uint32
	offset uint64
}

// account holds what was promised: for every line, whether and where it was acknowledged.
type account struct {
	lines []string

	mu         sync.Mutex
	at         map[spot]int // line number by acknowledged place
	acked      int
	recognized int // acknowledged as stored already by an attempt before
	changed    chan struct{}
}

func newAccount(lines []string) *account {
	return &account{lines: lines, at: make(map[spot]int, len(lines)), changed: make(chan struct{}, 1)}
}

// promise records an acknowledgement. Two lines at one place is a broken promise of its own.
func (a *account) promise(line int, ack client.Ack) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	where := spot{ack.Shard, ack.Offset}
	if other, taken := a.at[where]; taken {
		return fmt.Errorf("lines %d and %d were both acknowledged at shard %d offset %d", other, line, ack.Shard, ack.Offset)
	}
	a.at[where] = line
	a.acked++
	if ack.Duplicate {
		a.recognized++
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
	return nil
}

func (a *account) count() (acked, recognized int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acked, a.recognized
}

// finding is what reading everything back found.
type finding struct {
	found      int // acknowledged, at its place, byte for byte
	missing    int // acknowledged, and not at its place
	different  int // at its place, with other bytes
	duplicates int // a line that is there more than once
	extra      int // a record that was never acknowledged
}

// audit compares records, as they were read back, with what was promised.
type audit struct {
	account *account
	times   []int // how often each line was found, by the number in its header
	finding finding
}

func newAudit(a *account) *audit { return &audit{account: a, times: make([]int, len(a.lines))} }

func (u *audit) add(rec client.Record) {
	// Some lines of the table are equal, so the value alone cannot tell a duplicate from a twin: each
	// record carries the number of its line in a header.
	number, ok := lineNumber(rec.Headers)
	if ok && number < len(u.times) {
		u.times[number]++
		if u.times[number] > 1 {
			u.finding.duplicates++
		}
	}
	line, promised := u.account.at[spot{rec.Shard, rec.Offset}]
	switch {
	case !promised:
		u.finding.extra++
	case line != number || !ok || string(rec.Value) != u.account.lines[line]:
		u.finding.different++
	default:
		u.finding.found++
	}
}

// close returns the finding once every record was added.
func (u *audit) close() finding {
	u.finding.missing = u.account.acked - u.finding.found - u.finding.different
	return u.finding
}
