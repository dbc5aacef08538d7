// SPDX-License-Identifier: Apache-2.0

package main

// deliveryRules are those of the node around the logs: what readers get and are told, and what a node may do.
func deliveryRules() []mutation {
	return []mutation{
		{
			name: "register-after-reading-history",
			why:  "R1: what is committed in between would be missed.",
			file: "broker/fanout/fanout.go",
			old:  "	if h.ended != nil || at != h.pos.Sequence {\n",
			new:  "	if h.ended != nil {\n",

			caught: by("broker/fanout", "TestJoinWithoutGapOrRepeat"),
		},
		{
			name: "watch-registered-after-the-snapshot",
			why:  "What is put while the snapshot goes out, of a key that it has passed, would come neither with it nor live.",
			file: "broker/cache/admit.go",
			old:  "	pos, err := f.register()\n",
			new:  "	pos, err := f.shard.Hub().Position(), error(nil)\n	if f.sub == nil {\n		pos, err = f.register()\n	}\n",
			also: []edit{{
				"broker/cache/catchup.go",
				"	return n, true, f.done(s.watch)\n",
				"	_, _ = f.register()\n	return n, true, f.done(s.watch)\n",
			}},

			caught: by("broker/cache", "TestWatchIsRegisteredBeforeItsSnapshot"),
		},
		{
			name: "select-less-than-was-asked-for",
			why:  "A filter that is added counts from the position that adding it returns.",
			file: "broker/fanout/reselect.go",
			old:  "	h.index.Add(g, come)\n",
			new:  "	_ = come\n",

			caught: by("broker/fanout", "TestReselect"),
		},
		{
			name: "answer-what-has-expired",
			why:  "A key is absent from its deadline on, whatever the sweep has reached.",
			file: "broker/cache/cache.go",
			old:  "	return e.Until != 0 && e.Until <= a.now || ",
			new:  "	return ",

			caught: by("broker/cache", "TestReadsAgainstAModel"),
		},
		{
			name: "fan-out-less-than-is-committed",
			why:  "R1: the hub's position says that all below it was offered.",
			file: "broker/host/shard.go",
			old:  "			} else if c.Batch.HasOffsets() {\n",
			new:  "			} else if false {\n",

			caught: by("cluster/streams", "TestLastRecordIsPublishedWhenTheConnectionIsLost"),
		},
		{
			name: "drop-without-a-word",
			why:  "R2: loss is stated.",
			file: "broker/fanout/queue.go",
			old:  "			q.dropped = note(q.dropped, shard, it.offsets())\n",
			new:  "",

			caught: by("broker/fanout", "TestFilteredLoss"),
		},
		{
			name: "pass-over-a-loss-with-the-position",
			why:  "R2: a subscriber that resumes there would never be told.",
			file: "broker/stream/stream.go",
			old:  "				s.gap(p, lost.From, lost.To, wire.GapDropped)\n				p.next",
			new:  "				_ = lost\n				p.next",

			caught: by("cluster/streams", "TestLossIsStatedBeforeThePositionPassesIt"),
		},
		{
			name: "pass-over-what-retention-removed",
			why:  "R2: a reader that retention has passed is told what it missed.",
			file: "broker/stream/history.go",
			old:  "		s.gap(p, p.next, start.Offset, wire.GapRetention)\n",
			new:  "		p.next = max(p.next, start.Offset)\n",

			caught: by("cluster/bubble", "TestRetentionByAgeOverDays"),
		},
		{
			name: "read-what-a-trim-gave-up-inside-a-batch",
			why:  "R19: the shard begins at exactly the offset that was asked for.",
			file: "broker/stream/history.go",
			old:  "p.next < start.Offset || p.seq < start.Sequence {",
			new:  "p.seq < start.Sequence {",

			caught: by("broker/host", "TestTrimInsideTheBatchAReaderStandsAt"),
		},
		{
			name: "give-a-filtered-reader-what-it-did-not-ask-for",
			why:  "R10: a filtered subscription gets the records that match, and no other.",
			file: "broker/stream/history.go",
			old:  "		if all {\n",
			new:  "		if all || len(keep) > 0 {\n",

			caught: by("cluster/streams", "TestFilters"),
		},
		{
			name: "send-a-settlement-to-the-subscribers",
			why:  "What a batch settles names claims of others: it is for the leader, and no client may see it.",
			file: "broker/fanout/match.go",
			old:  "	return keep, len(keep) == b.Count() && !b.HasSettlement()\n",
			new:  "	return keep, len(keep) == b.Count()\n",

			caught: by("broker/stream", "TestSettlementsAreNotDelivered"),
		},
		{
			name: "send-a-settlement-to-who-follows-live",
			why:  "As when it is read from the log.",
			file: "broker/fanout/match.go",
			old:  "	case n == e.Batch.Count() && !e.Batch.HasSettlement():\n",
			new:  "	case n == e.Batch.Count():\n",

			caught: by("broker/fanout", "TestSettlementsAreNotDelivered"),
		},
		{
			name: "open-again-without-a-cut-after-a-failed-flush",
			why:  "S7, ST-11: what was not flushed reads back from the page cache, and was told to be of unknown outcome.",
			file: "broker/host/manage.go",
			old:  "		r.cut = &flushed\n",
			new:  "		_ = flushed\n",

			caught: by("broker/host", "TestFailedFlush"),
		},
		{
			name: "answer-although-the-flush-failed",
			why:  "S2: a failed flush acknowledges nothing.",
			file: "broker/host/flush.go",
			old:  "	if err != nil {\n		s.lose(now, err)\n		return false\n	}\n",
			new:  "	if err != nil {\n		defer s.lose(now, err)\n		length = l.State().Length\n	}\n",

			caught: by("cluster/bubble", "TestFailingFlushes"),
		},
		{
			name: "open-damaged-data-again-and-again",
			why:  "R6: damage is for an operator to look at, not for the node to wear away.",
			file: "broker/host/manage.go",
			old:  "	case errors.As(o.err, &corrupt), errors.Is",
			new:  "	case errors.As(o.err, &corrupt) && false, errors.Is",

			caught: by("cluster/node", "TestStatusNamesADamagedShard"),
		},
		{
			name: "serve-who-has-no-grant",
			why:  "S12: no operation crosses a tenant.",
			file: "broker/ingress/lane.go",
			old:  "	if found && claims.Allows(action, rl.Name) {\n",
			new:  "	if found {\n",

			caught: by("cluster/streams", "TestTenantsDoNotMeet"),
		},
		{
			name: "let-a-token-that-has-ended-stay",
			why:  "S12: a grant ends when it says so, also on a connection that is open.",
			file: "broker/ingress/conn.go",
			old:  "			c.close(code.Unauthenticated, \"the token has expired\")\n",
			new:  "",

			caught: by("cluster/streams", "TestTokenExpiresOnLiveConnection"),
		},
		{
			name: "let-the-certificate-end",
			why:  "O3: it is renewed before its end, and nobody has to think of it.",
			file: "controlplane/server.go",
			old:  "		if renewed, err := s.certs.Renew(); err != nil {\n",
			new:  "		if renewed, err := false, error(nil); err != nil {\n",

			caught: by("cluster/bubble", "TestCertificatesOverYears"),
		},
	}
}
