// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	"margay.dev/broker/group"
	"margay.dev/wire/batch"
)

// What a pause holds back, only a resume lets out: a change of settings says nothing of it.
func TestAnUpdateLetsNothingOutOfAPausedGroup(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	c := r.join()
	r.command(group.Command{Op: group.Pause, Name: "g"})
	s := batch.DefaultGroupSettings()
	s.MaxAttempts = 3
	r.command(group.Command{Op: group.Update, Name: "g", Settings: &s})
	r.push(batch.Record{})
	r.wantOffsets(c)
	r.command(group.Command{Op: group.Resume, Name: "g"})
	r.wantOffsets(c, 0)
}
