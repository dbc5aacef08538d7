// SPDX-License-Identifier: Apache-2.0

package main

// clientRules are those of the client library: what it may say of a record, and what it may send again.
func clientRules() []mutation {
	return []mutation{
		{
			name: "call-refused-what-may-be-stored",
			why:  "R5: refused means certainly not stored.",
			file: "client/internal/order/answer.go",
			old:  "			it.onWire, it.maybe = false, true\n",
			new:  "			it.onWire = false\n",

			caught: by("client/internal/order", "TestLostConnectionLeavesItUnknown"),
		},
		{
			name: "send-again-under-a-new-id-what-may-be-stored",
			why:  "S7: under another id the shard cannot know it, and stores it twice.",
			file: "client/internal/order/answer.go",
			old:  "		if it.maybe {\n			lost = it\n",
			new:  "		if it.maybe && false {\n			lost = it\n",

			caught: by("client/internal/order", "TestForgottenProducerReportsWhatMayBeStored"),
		},
		{
			name: "name-a-predecessor-that-was-given-up",
			why:  "S5: the shard would wait for it for ever.",
			file: "client/internal/order/order.go",
			old:  "	it.Previous = l.settled\n	if l.cursor > 0 {\n",
			new:  "	it.Previous = it.Sequence - 1\n	if l.cursor > 0 {\n",

			caught: by("client/internal/order", "TestSuccessorLeavesOutWhatWasGivenUp"),
		},
		{
			name: "write-again-before-all-answers-are-in",
			why:  "S7: an answer could be about a batch that is written twice.",
			file: "client/internal/order/answer.go",
			old:  "	if l.rewind && len(l.owed) == 0 {\n",
			new:  "	if l.rewind {\n",

			caught: by("client/internal/order", "TestNothingIsWrittenAgainWhileItsAnswerIsOwed"),
		},
		{
			name: "try-without-end",
			why:  "R5: a record ends when its delivery timeout is over.",
			file: "client/lane.go",
			old:  "		deadline: now.Add(l.p.cfg.deliveryTimeout),\n",
			new:  "		deadline: now.Add(10 * l.p.cfg.deliveryTimeout),\n",

			caught: by("cluster/bubble", "TestLongOutage"),
		},
		{
			name: "end-a-batch-for-the-reason-of-its-position",
			why:  "R5: the reason is one that the caller can act on.",
			file: "client/internal/order/answer.go",
			old:  "			l.items[i].last = l.items[0].last\n",
			new:  "",

			caught: by("cluster/bubble", "TestFullDisk"),
		},
		{
			name: "resume-where-the-connection-was-made",
			why:  "R1: each offset once, across reconnections.",
			file: "client/shard_state.go",
			old:  "	if !s.placed {\n		return s.start\n	}\n	return wire.Start{",
			new:  "	if !s.placed || s.start.Kind == wire.StartEarliest {\n		return s.start\n	}\n	return wire.Start{",

			caught: by("client", "TestRetentionPassesAReaderThatWasAway"),
		},
		{
			name: "give-twice-what-came-twice",
			why:  "R1: each offset once.",
			file: "client/shard_state.go",
			old:  "	from, to := max(base, s.receive), next\n	if s.over || to <= s.receive {\n",
			new:  "	from, to := base, next\n	if s.over {\n",

			caught: by("client", "TestShardStateCoversEveryOffsetOnce"),
		},
		{
			name: "store-a-place-behind-what-is-not-dealt-with",
			why:  "R13: a record counts as read when the next one is asked for.",
			file: "client/durable.go",
			old:  "			if read && h.shard == sh {\n",
			new:  "			if read && h.shard == sh && false {\n",

			caught: by("cluster/streams", "TestPositionsAreStoredByThemselves"),
		},
		{
			name: "let-the-token-end",
			why:  "R1: a connection outlives its tokens.",
			file: "client/internal/link/conn.go",
			old:  "	return max(time.Until(c.expires)*4/5, minRefresh)\n",
			new:  "	return 24 * time.Hour\n",

			caught: by("cluster/bubble", "TestIdleForHours"),
		},
		{
			name: "tell-what-the-snapshot-has",
			why:  "S10: a change that a page has shown already would come again, and take its reader back in time.",
			file: "client/internal/fold/queue.go",
			old:  "		if !seen {\n",
			new:  "		if true || seen {\n",

			caught: by("client/internal/fold", "TestFoldEqualsTheStore"),
		},
		{
			name: "forget-what-found-no-room",
			why:  "S10: what comes live while history is on its way, and finds no room, has to be read again.",
			file: "client/internal/fold/fold.go",
			old:  "	if s.missed {\n		return w.fallBehind(",
			new:  "	if false {\n		return w.fallBehind(",

			caught: by("client/internal/fold", "TestWhatFoundNoRoomIsReadAgain"),
		},
		{
			name: "amend-what-may-be-stored",
			why:  "S7: the shard may hold another batch under that name, and its answer would be taken for one to this.",
			file: "client/internal/order/answer.go",
			old:  "		if it.maybe || !fix(it.Value) {\n",
			new:  "		if !fix(it.Value) {\n",

			caught: by("client/internal/order", "TestAmendedBatchKeepsItsPlace"),
		},
	}
}
