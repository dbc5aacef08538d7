// SPDX-License-Identifier: Apache-2.0

package main

// memoryRules are those of what a shard remembers of its clients: it lies in the log, and outlives every start.
func memoryRules() []mutation {
	return []mutation{
		{
			name: "confirm-a-settlement-before-it-is-stored",
			why:  "R13: what was confirmed would come back after a crash.",
			file: "broker/shard/wait.go",
			old:  "	if sequence < c.mark {\n		eff.Answers = append(eff.Answers, a)\n",
			new:  "	if sequence < c.length+1 {\n		eff.Answers = append(eff.Answers, a)\n",

			caught: by("broker/shard", "TestCursorIsDurableBeforeItIsAnswered"),
		},
		{
			name: "move-a-cursor-back",
			why:  "R13: a late commit of an earlier place would bring back what is dealt with.",
			file: "broker/shard/cursors.go",
			old:  "	return offset > v.value.Offset || now-v.value.Updated >= CursorTouch.Microseconds()\n",
			new:  "	return offset != v.value.Offset || now-v.value.Updated >= CursorTouch.Microseconds()\n",
			also: []edit{{
				"broker/shard/cursors.go",
				"		m.Offset = max(m.Offset, is.value.Offset)\n",
				"",
			}},

			caught: by("broker/shard", "TestLateCommits"),
		},
		{
			name: "take-a-commit-of-a-holder-that-was-taken-over",
			why:  "R14: one subscription holds a name.",
			file: "broker/shard/cursors.go",
			old:  "	case v.value.Epoch != m.Epoch:\n",
			new:  "	case v.value.Epoch < m.Epoch:\n",

			caught: by("broker/shard", "TestLateCommits"),
		},
		{
			name: "put-a-cursor-beyond-the-end",
			why:  "R13: it would pass records that are still to come.",
			file: "broker/shard/cursors.go",
			old:  "	case m.Offset > c.ceiling:\n",
			new:  "	case m.Offset > c.ceiling+1000:\n",

			caught: by("broker/shard", "TestLateCommits"),
		},
		{
			name: "forget-a-cursor-that-is-used",
			why:  "R13: its place would be lost.",
			file: "broker/shard/cursors.go",
			old:  "		case asOf-v.value.Updated <= idle:\n",
			new:  "		case asOf-v.value.Updated <= idle/2:\n",

			caught: by("cluster/bubble", "TestCursorsAreForgotten"),
		},
		{
			name: "leave-the-producers-out-of-a-checkpoint",
			why:  "S7: after a start the retry of what is stored would be stored again.",
			file: "broker/shard/checkpoint.go",
			old:  "	for _, p := range producers {\n		entries = append(entries, p)\n	}\n",
			new:  "",

			caught: by("broker/shard", "TestCheckpointCarriesTheProducers"),
		},
		{
			name: "leave-the-cursors-out-of-a-checkpoint",
			why:  "R13: a cursor would be gone after a start.",
			file: "broker/shard/checkpoint.go",
			old:  "	entries = append(append(entries, c.cursors.entries()...), c.lasts.entries()...)\n",
			new:  "	entries = append(entries, c.lasts.entries()...)\n",

			caught: by("broker/shard", "TestCursorIsNewOrResumed"),
		},
		{
			name: "leave-the-last-records-out-of-a-checkpoint",
			why:  "R15: nobody would be told of a client that was lost.",
			file: "broker/shard/checkpoint.go",
			old:  "	entries = append(append(entries, c.cursors.entries()...), c.lasts.entries()...)\n",
			new:  "	entries = append(entries, c.cursors.entries()...)\n",

			caught: by("broker/shard", "TestLastRecordsAfterARestart"),
		},
		{
			name: "leave-the-dedup-ids-out-of-a-checkpoint",
			why:  "R17: after a start a duplicate would be stored.",
			file: "broker/shard/checkpoint.go",
			old:  "	entries = append(entries, c.dedups.entries()...)\n",
			new:  "",

			caught: by("cluster/streams", "TestDedupWindow"),
		},
		{
			name: "leave-the-generations-out-of-a-checkpoint",
			why:  "R1: who resumes could not be told that what he read was cut off.",
			file: "broker/shard/checkpoint.go",
			old:  "	entries = append(entries, c.gens.entry(), batch.LogStart",
			new:  "	entries = append(entries, batch.LogStart",

			caught: by("broker/shard", "TestCheckpointCarriesTheGenerations"),
		},
		{
			name: "let-a-duplicate-begin-its-window-anew",
			why:  "R17: the window counts from the first record on.",
			file: "broker/shard/dedup.go",
			old:  "		c.duplicate(p, &stored{base: was.offset,",
			new:  "		c.dedups.byID[string(id)] = dedup{id: string(id), offset: was.offset, appendTime: c.at(now)}\n		c.duplicate(p, &stored{base: was.offset,",

			caught: by("cluster/bubble", "TestDedupWindowOverTime"),
		},
		{
			name: "publish-a-last-record-twice",
			why:  "R15: the record and the end of its entry are one batch, or a power cut parts them.",
			file: "broker/shard/presence.go",
			old:  "	c.lasts.unset(b.Sequence(), b.ProducerID(), true)\n	return true\n",
			new:  "	return true\n",

			caught: by("broker/shard", "TestLastRecordIsPublishedOnce"),
		},
		{
			name: "forget-after-a-start-who-has-to-show-himself",
			why:  "R15: who does not come back after a restart is lost, and his record is published.",
			file: "broker/shard/checkpoint.go",
			old:  "	c.lasts.allSilent()\n",
			new:  "",

			caught: by("cluster/bubble", "TestLastRecords"),
		},
		{
			name: "give-nobody-his-grace",
			why:  "R15: who comes back after a restart is not lost.",
			file: "broker/shard/presence.go",
			old:  "			c.lasts.silent[id] = now + is.value.grace.Microseconds()\n",
			new:  "			c.lasts.silent[id] = now + is.value.grace.Microseconds()/1000\n",

			caught: by("cluster/bubble", "TestLastRecords"),
		},
	}
}
