// SPDX-License-Identifier: Apache-2.0

package main

// groupRules are those of consumer groups: who has a message, what becomes of it, and when that may be relied on.
func groupRules() []mutation {
	const (
		groups  = "cluster/explore/queues"
		walks   = "TestWalks"
		claims  = "broker/group/claims.go"
		settle  = "broker/group/settle.go"
		applied = "broker/group/apply.go"
	)
	return []mutation{
		{
			name: "pass-over-what-was-carried-unread",
			why:  "Q1: what was carried before its group has read it would wait for ever.",
			file: "broker/group/intake.go",
			old:  "	s.followStart(g)\n	for _, b := range x.Batches {\n",
			new:  "	w.scan = max(w.scan, s.start)\n	for _, b := range x.Batches {\n",

			caught: by("broker/shard", "TestCarriedBeforeItWasRead"),
		},
		{
			name: "hand-out-behind-a-write-that-failed",
			why:  "S8: who got the message would hold it beside the one whose claim is there again.",
			file: "broker/group/step.go",
			old:  "	s.recall(hands)\n",
			new:  "	_ = hands\n",

			caught: by("broker/shard", "TestOneHolderAfterATimeoutThatIsCutOff"),
		},
		{
			name: "advance-before-the-dead-letter",
			why:  "S8: between the two a crash leaves a message that is neither outstanding nor settled nor dead.",
			file: claims,
			old:  "		s.add(batch.Dead{\n",
			new: "		s.add(batch.Settled{Group: g.id, Ranges: []batch.OffsetRange{{From: offset, To: offset + 1}}})\n" +
				"		s.fx.size = partBytes\n		s.add(batch.Dead{\n",

			caught: by(groups, walks),
		},
		{
			name: "confirm-a-settlement-before-the-mark",
			why:  "S9: a crash would undo what was answered.",
			file: "broker/shard/groups.go",
			old:  "	for _, a := range answers {\n		c.answerGroups(a, eff)\n",
			new:  "	for _, a := range answers {\n		eff.Answers = append(eff.Answers, a)\n",

			caught: by(groups, walks),
		},
		{
			name: "take-a-token-without-its-hand-out-number",
			why:  "QU-01: a late ack would settle what somebody else works on.",
			file: settle,
			old:  "		return c, ok && c.handOut == handOut\n",
			new:  "		return c, ok\n",

			caught: by(groups, walks),
		},
		{
			name: "keep-a-delay-in-memory-only",
			why:  "QU-07: after a restart the message would be there at once.",
			file: claims,
			old:  "	s.add(a)\n	s.takeParked(g, a)\n",
			new:  "	late := a\n	a.Due = 0\n	s.add(a)\n	s.takeParked(g, late)\n",

			caught: by(groups, walks),
		},
		{
			name: "keep-ended-attempts-in-memory-only",
			why:  "QU-02: each restart would set the count back, and a message that nobody can process never becomes a dead letter.",
			file: claims,
			old:  "	s.add(a)\n	s.takeParked(g, a)\n",
			new:  "	s.apply(a, false)\n	s.takeParked(g, a)\n",

			caught: by(groups, walks),
		},
		{
			name: "free-a-key-before-its-settlement-is-committed",
			why:  "A crash could bring back the message behind which the next of its key was handed out.",
			file: "broker/group/work.go",
			old:  "		s.addFreed(g, freed{s.undo.sequence, key})\n",
			new:  "		g.free(key)\n",

			caught: by(groups, walks),
		},
		{
			name: "count-no-attempt-of-a-consumer-that-died",
			why:  "QU-03: a message that kills its consumer would kill them all.",
			file: "broker/group/members.go",
			old:  "		if !orderly && h.claim.handOut <= delivered",
			new:  "		if !orderly && false && h.claim.handOut <= delivered",

			caught: by(groups, walks),
		},
		{
			name: "count-what-was-never-sent",
			why:  "A connection that is lost would make dead letters of messages that nobody has seen.",
			file: "broker/group/members.go",
			old:  "		if !orderly && h.claim.handOut <= delivered && (",
			new:  "		if !orderly && (",

			caught: by(groups, walks),
		},
		{
			name: "hand-out-what-is-not-committed",
			why:  "S4: a crash could take the message that somebody works on.",
			file: "broker/shard/publish.go",
			old:  "	c.appended(now, p.Batch)\n",
			new:  "	c.appended(now, p.Batch)\n	c.groups.Committed(p.Batch)\n",

			caught: by(groups, walks),
		},
		{
			name: "give-back-a-claim-that-somebody-else-has",
			why:  "S8: a message has one holder, also when a write failed in between.",
			file: claims,
			old:  "			if s.claimed(g, e.offset) || c.to",
			new:  "			if c.to",

			caught: by("broker/shard", "TestOneHolderAfterATimeoutThatIsCutOff"),
		},
		{
			name: "take-an-earlier-ack-of-what-was-handed-out-again",
			why:  "QU-01: whoever works on it now would do so in vain, and is told that it is not his.",
			file: settle,
			old:  "	case !ack || g.handed.has(offset) || !g.outstanding(offset):\n",
			new:  "	case !ack || !g.outstanding(offset):\n",

			caught: by(groups, walks),
		},
		{
			name: "begin-again-with-hand-out-numbers",
			why:  "QU-01: a token of before would match.",
			file: "broker/group/work.go",
			old:  "	w.held, w.scanning, w.loaded = 0, 0, false\n",
			new:  "	w.held, w.scanning, w.loaded, g.handOut = 0, 0, false, 0\n",

			caught: by(groups, walks),
		},
		{
			name: "leave-dead-letters-out-of-checkpoints",
			why:  "S8: after a restart they would be nowhere.",
			file: applied,
			old:  "		out = append(out, g.dead[o])\n",
			new:  "		_ = g.dead[o]\n",

			caught: by(groups, "TestCheckpointsHoldWhatBecame"),
		},
		{
			name: "leave-ended-attempts-out-of-checkpoints",
			why:  "QU-02: what waits for its next attempt would be passed, and forgotten.",
			file: applied,
			old:  "		out = append(out, g.parked[o])\n",
			new:  "		_ = g.parked[o]\n",

			caught: by(groups, walks),
		},
		{
			name: "let-a-claim-last-for-ever",
			why:  "A consumer that hangs would keep its message.",
			file: claims,
			old:  "	g.work.deadlines.add(run{c.deadline, c.handOut, it.offset, 1})\n",
			new:  "",

			caught: by(groups, walks),
		},
		{
			name: "let-claims-outlive-a-seek",
			why:  "S8: the message would be handed out a second time, beside whoever has it.",
			file: "broker/group/command.go",
			old:  "func (s *Groups) seek(g *Group, cursor uint64) {\n	s.endAll(g)\n",
			new:  "func (s *Groups) seek(g *Group, cursor uint64) {\n",

			caught: by(groups, walks),
		},
		{
			name: "begin-with-what-the-log-is-giving-up",
			why:  "The group would wait for it for ever.",
			file: "broker/group/step.go",
			old:  "return max(s.start, s.gone) }",
			new:  "return s.start }",

			caught: by("broker/shard", "TestBeginningBehindWhatIsGivenUp"),
		},
		{
			name: "hold-the-keys-of-what-is-lost",
			why:  "No other message of that key would ever be handed out.",
			file: "broker/group/step.go",
			old:  "				s.freeLater(g, c.key)\n				s.endClaim(g, o, c)\n",
			new:  "				s.endClaim(g, o, c)\n",

			caught: by("broker/shard", "TestKeyOfWhatIsLostIsFree"),
		},
		{
			name: "store-what-comes-with-a-lost-claim",
			why:  "Consume, process, produce is one: what was produced from a message that somebody else has is stored by him.",
			file: "broker/shard/groups.go",
			old:  "	return &x, c.groups.Holds(&x)\n",
			new:  "	return &x, nil\n",

			caught: by(groups, walks),
		},
		{
			name: "hand-out-expired-messages",
			why:  "A message that has expired is not handed out.",
			file: "broker/group/hand.go",
			old:  "	if it.expires != 0 && it.expires <= s.asOf {\n",
			new:  "	if it.expires != 0 && it.expires <= s.asOf && false {\n",

			caught: by(groups, walks),
		},
		{
			name: "settle-a-message-that-was-retried-without-its-retry",
			why:  "S9: what waits for its next attempt would come again after it was settled.",
			file: applied,
			old:  "			s.unpark(g, o)\n",
			new:  "			_ = o\n",

			caught: by(groups, walks),
		},
	}
}
