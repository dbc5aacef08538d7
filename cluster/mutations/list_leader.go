// SPDX-License-Identifier: Apache-2.0

package main

// leaderRules are those of the batches that a leader makes itself, and no producer.
func leaderRules() []mutation {
	return []mutation{
		{
			name: "give-carried-records-offsets",
			why:  "A value keeps the version that it was told, and nobody's offsets have holes.",
			file: "wire/batch/header.go",
			old:  "	if !b.HasOffsets() {\n",
			new:  "	if b.IsControl() {\n",

			caught: by("broker/stream", "TestCarriedRecordsAreNotDelivered"),
		},
		{
			name: "believe-any-origin-of-a-carried-record",
			why:  "One beyond the end of the log would win over all that is written to its key from then on.",
			file: "wire/batch/carried.go",
			old:  "	if m.c.err == nil && (offset >=",
			new:  "	if m.c.err == nil && false && (offset >=",

			caught: by("wire/batch", "TestVectors"),
		},
		{
			name: "let-producers-carry",
			why:  "Who carries says what is the newest value of a key, whatever is in the log.",
			file: "wire/batch/header.go",
			old:  "	producerMaySet  = compressionMask | AttrScheduled | AttrDedup | AttrSettlement\n",
			new:  "	producerMaySet  = compressionMask | AttrScheduled | AttrDedup | AttrSettlement | AttrCarried\n",

			caught: by("wire/batch", "TestLeaderBatchesAreTheLeaders"),
		},
		{
			name: "hand-what-was-carried-to-the-application",
			why:  "R1: each record comes once, should a broker send what takes no offsets.",
			file: "client/shard_state.go",
			old:  "	if !b.HasOffsets() {\n",
			new:  "	if b.IsControl() {\n",

			caught: by("client", "TestShardStateTakesNothingWithoutOffsets"),
		},
		{
			name: "let-a-full-log-refuse-its-leader",
			why:  "What is carried and expired is what makes room: without it a full cache stays full.",
			file: "storage/memory.go",
			old:  "		own := !b.HasOffsets() || b.IsExpired()\n",
			new:  "		own := b.IsControl()\n",

			caught: by("storage", "TestFullMemoryTakesItsLeadersBatches"),
		},
		{
			name: "deliver-expired-keys-to-clients-of-before",
			why:  "They would take the batch for damage.",
			file: "broker/ingress/subscribe.go",
			old:  "	if info.Keep == control.KeepNewest && served",
			new:  "	if info.Keep == control.KeepNewest && false && served",

			caught: by("broker/ingress", "TestOlderClientsReadNoLogThatTheyTakeForDamaged"),
		},
	}
}
