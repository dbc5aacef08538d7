// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
)

// sweepKeys bounds what one turn expires: a publish behind it waits for no more than that, however many keys end at one
// moment.
const sweepKeys = 100

// sweep appends tombstones for keys whose time has ended, in a log that keeps the newest of each key: whoever watches
// learns of each end exactly once, also when it came while nobody led the shard. To readers the keys are absent since
// their deadline, whenever this comes.
//
// Whether the key has been written since is decided here, among the appends, and what an earlier turn has expired is
// committed before the next: the index would name it again.
func (c *Core) sweep(now int64, eff *Effects) {
	if at := c.sweepAt(); at == 0 || at > c.at(now) {
		return
	}
	at := c.at(now)
	var gone [][]byte
	c.keys.index.Due(at, sweepKeys, func(key string, _ keyindex.Entry) bool {
		if _, pending := c.keys.pending.newest[key]; !pending {
			gone = append(gone, []byte(key))
		}
		return true
	})
	if len(gone) == 0 {
		// All of the first were written anew, and the index learns of it when that is committed.
		c.sweepAgain = c.length
		return
	}
	b := batch.BuildExpired(gone, at)
	c.rollFor(now, int64(b.Size()), eff)
	c.open(now, eff)
	c.append(now, entry{batch: b}, eff)
	c.appended(now, b)
	c.sweepAgain = c.length
	eff.Expired += len(gone)
}

// sweepAt is when the next key ends (us); 0 when none does, or its turn has not come. Nothing but this makes room in a full
// log in memory, and its storage keeps some for it; a full disk may be filled by others, who make room, too.
func (c *Core) sweepAt() int64 {
	if !c.cfg.KeepNewest || !c.keys.ready() || c.full && !c.cfg.Memory || c.lost != nil || c.sweepAgain > c.mark {
		return 0
	}
	return c.keys.index.NextDue()
}
