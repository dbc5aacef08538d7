// SPDX-License-Identifier: Apache-2.0

package main

// cacheRules are those of a log that is read by key: what decides on a key decides among the appends, and a deadline stays
// where it is.
func cacheRules() []mutation {
	return []mutation{
		{
			name: "count-a-time-to-live-from-where-it-was-carried-to",
			why:  "A deadline is a point in time: carried, restarted or led by another, a value lives no longer.",
			file: "storage/keyindex/each.go",
			old:  "until(metas.AppendTime(), m.TTL)",
			new:  "until(b.AppendTime(), m.TTL)",

			caught: by("cluster/caches", "TestDeadlinesOverRestarts"),
		},
		{
			name: "carry-what-was-live-when-it-was-read",
			why:  "What was deleted or written anew a moment ago would come back from the dead when the log is read again.",
			file: "broker/shard/carry.go",
			old:  "	return known && !n.gone && n.Offset == r.Offset && n.Sequence == sequence\n",
			new:  "	return known || !n.gone\n",

			caught: by("broker/shard", "TestCarryIsDecidedAmongTheAppends"),
		},
		{
			name: "expire-a-key-that-was-put-again",
			why:  "The new value would be gone before its time.",
			file: "broker/shard/sweep.go",
			old:  "; !pending {\n",
			new:  "; !pending || true {\n",

			caught: by("broker/shard", "TestExpiryIsDecidedAmongTheAppends"),
		},
		{
			name: "add-to-what-is-committed",
			why:  "Of two additions at once one would not count.",
			file: "broker/shard/derive.go",
			old:  "	n, known := d.core.keys.newest(key)\n",
			new:  "	e, known := d.core.keys.index.Get(key)\n	n := newestKey{Entry: e}\n",

			caught: by("cluster/caches", "TestCompareAndSet"),
		},
		{
			name: "tell-a-snapshots-newer-entry-again",
			why:  "S10: a list goes on with the log while it is made, and what it showed comes live too.",
			file: "client/internal/fold/fold.go",
			old:  "ok && c.Offset <= at {\n",
			new:  "ok && c.Offset <= at && false {\n",

			caught: by("client/internal/fold", "TestFoldEqualsTheStore"),
		},
	}
}
