// SPDX-License-Identifier: Apache-2.0

package main

// consumeRules are those of the lanes of consumers.
func consumeRules() []mutation {
	return []mutation{
		{
			name: "consume-credit-is-promised-to-nobody",
			why:  "A shard that settles and hands out in one step would take back for ever what it gave.",
			file: "broker/queue/pool.go",
			old:  "		if p.seats > 1 { // who is alone",
			new:  "		if false { // who is alone",

			caught: by("broker/queue", "TestCreditIsOneForAllShards"),
		},
		{
			name: "consume-a-busy-shard-is-told-once",
			why:  "Its consumer would wait for ever, with credit.",
			file: "broker/queue/pool.go",
			old:  "		s.waits, p.owed = true, true\n",
			new:  "		s.waits = true\n",

			caught: by("broker/queue", "TestABusyShardIsToldLater"),
		},
		{
			name: "consume-hand-out-to-who-does-not-read",
			why:  "The claims would run while the messages wait, and nobody else would have them.",
			file: "broker/queue/pool.go",
			old:  "	return min(p.max-p.out-p.promised, room)\n",
			new:  "	return p.max - p.out - p.promised + 0*room\n",

			caught: by("broker/queue", "TestWhoDoesNotReadIsHandedNoMore"),
		},
		{
			name: "consume-credit-ends-with-its-shard",
			why:  "What was out of a shard that is closed would count for ever, and the other shards would get less.",
			file: "broker/queue/member.go",
			old:  "	m.seat.leave()\n	m.lane.cfg.Ended(m.id, why)\n",
			new:  "	m.lane.cfg.Ended(m.id, why)\n",

			caught: by("broker/queue", "TestAShardEndsAndTheOthersGoOn"),
		},
		{
			name: "consume-forget-what-was-delivered",
			why:  "A message that kills its consumer would never be counted, and come for ever.",
			file: "broker/queue/cut.go",
			old:  "	h.m.delivered = max(h.m.delivered, h.Items[n-1].HandOut)\n",
			new:  "",

			caught: by("broker/queue", "TestABrokenLaneSaysHowFarItGot"),
		},
		{
			name: "consume-count-what-the-broker-ends",
			why:  "A restart of the broker is no attempt of anybody's.",
			file: "broker/queue/serve.go",
			old:  "		l.end(told)\n		end = &wire",
			new:  "		l.end(false)\n		end = &wire",

			caught: by("broker/queue", "TestABrokenLaneSaysHowFarItGot"),
		},
		{
			name: "consume-send-settlements-to-consumers",
			why:  "A batch that settles messages of others is for the leader only.",
			file: "broker/queue/cut.go",
			old:  "	if n == x.Count() && !x.HasSettlement() {\n",
			new:  "	if n == x.Count() {\n",

			caught: by("broker/queue", "TestABatchWithASettlementIsCut"),
		},
	}
}
