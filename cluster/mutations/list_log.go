// SPDX-License-Identifier: Apache-2.0

package main

// logRules are those of the append: who gets which offset, when something is committed, and who is told.
func logRules() []mutation {
	return []mutation{
		{
			name: "acknowledge-before-the-flush",
			why:  "S2: what is answered is durable.",
			file: "broker/shard/commit.go",
			old:  "	case c.cfg.Fsync == FsyncAlways:\n		return c.flushed\n",
			new:  "	case c.cfg.Fsync == FsyncAlways:\n		return c.written\n",

			caught: by("cluster/bubble", "TestFailingFlushes"),
		},
		{
			name: "fan-out-before-the-commit",
			why:  "S4: a reader would see a record that a failure erases.",
			file: "broker/shard/commit.go",
			old:  "		eff.Committed = append(eff.Committed, Committed{Batch: e.batch, To: e.to})\n",
			new:  "",
			also: []edit{{
				"broker/shard/publish.go",
				"	eff.Append = append(eff.Append, b)\n",
				"	eff.Append = append(eff.Append, b)\n	eff.Committed = append(eff.Committed, Committed{Batch: b, To: e.to})\n",
			}},

			caught: by("cluster/bubble", "TestFailingFlushes"),
		},
		{
			name: "read-from-the-log-beyond-the-mark",
			why:  "S4: history must end where the commit does.",
			file: "broker/host/shard.go",
			old:  "	return l.ReadTo(buf, seq, s.hub.Sequence(), limit)\n",
			new:  "	return l.ReadTo(buf, seq, l.State().Length, limit)\n",
			also: []edit{{ // or the reader would wait for the hub to come to where it is
				"broker/fanout/fanout.go",
				"at != h.pos.Sequence {\n",
				"at < h.pos.Sequence {\n",
			}},

			caught: by("cluster/bubble", "TestNothingIsSeenBeforeItIsFlushed"),
		},
		{
			name: "answer-a-retry-from-the-pending-layer",
			why:  "S2: the original may still be cut off, and the answer with it.",
			file: "broker/shard/publish.go",
			old:  "	if was.base < c.ceiling {\n",
			new:  "	if was.base < c.nextOffset {\n",

			caught: by("broker/shard", "TestRetryIsStoredOnce"),
		},
		{
			name: "refuse-a-condition-from-the-pending-layer",
			why:  "R16: the publisher would believe in a record that a failed write takes back.",
			file: "broker/shard/conditions.go",
			old:  "	if rests <= c.ceiling {\n",
			new:  "	if rests <= c.nextOffset {\n",

			caught: by("broker/shard", "TestLosingAgainstWhatIsLost"),
		},
		{
			name: "decide-a-condition-by-what-is-committed",
			why:  "R16: a compare-and-set decided outside the ordered append lets two writers pass.",
			file: "broker/shard/conditions.go",
			old:  "		if known {\n",
			new:  "		if known && !n.pending {\n",

			caught: by("broker/shard", "TestExactlyOneWins"),
		},
		{
			name: "let-a-successor-pass-a-publish-that-failed",
			why:  "S5: later publishes wait behind earlier ones, whatever becomes of those.",
			file: "broker/shard/producers.go",
			old:  "	if seq > last && previous == last {\n",
			new:  "	if seq > last {\n",

			caught: by("broker/shard", "TestProducerOrder"),
		},
		{
			name: "call-not-stored-what-is-older-than-the-window",
			why:  "R5: fatal means certainly not stored, and the shard does not remember.",
			file: "broker/shard/producers.go",
			old:  "	if seq < p.window[0].sequence {\n",
			new:  "	if seq < p.window[0].sequence && false {\n",

			caught: by("broker/shard", "TestSequenceOlderThanTheWindow"),
		},
		{
			name: "take-a-publish-of-an-unknown-producer-for-its-first",
			why:  "S7: who names a predecessor that the shard does not know may be sending what it has.",
			file: "broker/shard/producers.go",
			old:  "		if previous != 0 {\n",
			new:  "		if previous != 0 && false {\n",

			caught: by("broker/shard", "TestProducerOrder"),
		},
		{
			name: "forget-an-active-producer",
			why:  "S7: its next retry would be stored twice.",
			file: "broker/shard/producers.go",
			old:  "		if lastAppend-p.newest().appendTime > ProducerIdle.Microseconds() {\n",
			new:  "		if lastAppend >= p.newest().appendTime {\n",

			caught: by("broker/shard", "TestProducerTableIsBounded"),
		},
		{
			name: "keep-the-memory-of-a-write-that-failed",
			why:  "S2: the retry of a batch that is not in the log would be told that it is.",
			file: "broker/shard/commit.go",
			old:  "	c.producers.cut(c.nextOffset)\n",
			new:  "",

			caught: by("broker/shard", "TestFailedWriteLeavesNoTrace"),
		},
		{
			name: "keep-the-dedup-ids-of-a-write-that-failed",
			why:  "S2: a record that is not in the log would be told to be a duplicate.",
			file: "broker/shard/commit.go",
			old:  "	c.dedups.cut(c.nextOffset)\n",
			new:  "",

			caught: by("broker/shard", "TestDedupIsOfTheRecord"),
		},
		{
			name: "keep-the-versions-of-a-write-that-failed",
			why:  "R16: a condition would be compared with a record that is not in the log.",
			file: "broker/shard/commit.go",
			old:  "	c.keys.pending.cut(at)\n",
			new:  "",

			caught: by("broker/shard", "TestLosingAgainstWhatIsLost"),
		},
		{
			name: "keep-the-cursors-of-a-write-that-failed",
			why:  "R13: a cursor would stand where nothing in the log says so.",
			file: "broker/shard/commit.go",
			old:  "	c.cursors.cut(at)\n",
			new:  "",

			caught: by("broker/shard", "TestCursorIsDurableBeforeItIsAnswered"),
		},
		{
			name: "leave-a-hole-where-a-write-failed",
			why:  "S3, S5: the next append takes the offsets of the one that failed.",
			file: "broker/shard/commit.go",
			old:  "	c.length, c.nextOffset, c.segment = first.batch.Sequence(), first.batch.BaseOffset(), first.before\n",
			new:  "	c.length, c.segment = first.batch.Sequence(), first.before\n",

			caught: by("broker/shard", "TestFailedWriteLeavesNoTrace"),
		},
		{
			name: "keep-what-a-failed-flush-left",
			why:  "S6: what is written and not flushed belongs to nobody once a flush has failed.",
			file: "broker/shard/shard.go",
			old:  "		c.cut(c.mark, ev.Err, eff)\n",
			new:  "		c.cut(c.written, ev.Err, eff)\n",

			caught: by("broker/shard", "TestLostFlush"),
		},
		{
			name: "answer-twice-when-the-deadline-passes",
			why:  "R5: a request has one answer.",
			file: "broker/shard/commit.go",
			old:  "			e.waiting = false\n			eff.Answers = append(eff.Answers, Answer{To: e.to, Err: code.New(code.Timeout,",
			new:  "			eff.Answers = append(eff.Answers, Answer{To: e.to, Err: code.New(code.Timeout,",

			caught: by("broker/shard", "TestDeadline"),
		},
		{
			name: "begin-a-generation-without-its-opening",
			why:  "S1: nothing of a generation precedes its opening.",
			file: "broker/shard/publish.go",
			old:  "	c.rollFor(now, int64(p.Batch.Size()), eff)\n	c.open(now, eff)\n",
			new:  "	c.rollFor(now, int64(p.Batch.Size()), eff)\n	if c.needsCheckpoint {\n		c.checkpoint(now, eff)\n	}\n",

			caught: by("broker/shard", "TestOpeningPrecedesEverything"),
		},
		{
			name: "lead-again-at-the-same-generation",
			why:  "S1: a broker never leads twice at one generation.",
			file: "controlplane/catalog/embedded/feed.go",
			old:  "			a.Generation++\n",
			new:  "			a.Generation = max(a.Generation, 1)\n",

			caught: by("controlplane/catalog/embedded", "TestConformance"),
		},
		{
			name: "let-time-go-backwards",
			why:  "R12, R17: expiry and windows are measured by append times, which never fall.",
			file: "broker/shard/publish.go",
			old:  "	c.lastAppend = c.at(now)\n",
			new:  "	c.lastAppend = now\n",

			caught: by("broker/shard", "TestAppendTimesNeverFall"),
		},
		{
			name: "drop-segments-before-the-new-start-is-committed",
			why:  "S11: a crash in between leaves a log that begins where nobody said.",
			file: "broker/shard/start.go",
			old:  "	c.control(now, eff, append(entries, batch.LogStart{Sequence: to.Sequence, Offset: to.Offset})...)\n",
			new:  "	c.control(now, eff, append(entries, batch.LogStart{Sequence: to.Sequence, Offset: to.Offset})...)\n	eff.Drop = to.Sequence\n",

			caught: by("broker/shard", "TestTrimIsExactAndCommitted"),
		},
		{
			name: "move-the-start-without-a-flush",
			why:  "S11: files are removed on the strength of it, whatever the fsync mode.",
			file: "broker/shard/start.go",
			old:  "	eff.Flush = eff.Flush || !c.cfg.Memory // whatever the fsync mode: files are removed on the strength of it\n",
			new:  "",

			caught: by("broker/shard", "TestNewStartIsFlushed"),
		},
		{
			name: "count-a-trim-before-its-flush",
			why:  "R19: who asked for it is told that it stays.",
			file: "broker/shard/commit.go",
			old:  "	case len(c.moves) > 0:\n",
			new:  "	case len(c.moves) > 0 && false:\n",

			caught: by("broker/shard", "TestTrimIsFlushedInEveryMode"),
		},
		{
			name: "trim-what-is-not-committed",
			why:  "R19: a record that is still to be answered would be gone.",
			file: "broker/shard/start.go",
			old:  "	case t.Offset > c.ceiling:\n",
			new:  "	case t.Offset > c.nextOffset:\n",

			caught: by("broker/shard", "TestTrimStopsAtTheCeiling"),
		},
		{
			name: "remove-more-than-retention-asks-for",
			why:  "R7: what stays is at least what was asked for.",
			file: "broker/shard/checkpoint.go",
			old:  "total-segments[i].Bytes < c.cfg.MaxBytes",
			new:  "total < c.cfg.MaxBytes",

			caught: by("broker/shard", "TestRetentionKeepsWhatItIsToKeep"),
		},
		{
			name: "refuse-the-retry-of-what-is-stored-on-a-full-disk",
			why:  "R5, S7: a retry of what is stored is no new record.",
			file: "broker/shard/publish.go",
			old:  "	id, seq := p.Batch.ProducerID(), p.Batch.ProducerSequence()\n",
			new: "	if c.full {\n		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: code.New(code.StorageFull, \"full\")})\n		return\n	}\n" +
				"	id, seq := p.Batch.ProducerID(), p.Batch.ProducerSequence()\n",

			caught: by("broker/shard", "TestRetryOnAFullDiskIsAnswered"),
		},
	}
}
