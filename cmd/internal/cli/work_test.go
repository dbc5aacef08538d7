// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// What makes no sense is said before anything is tried: no cluster is needed to be told, and no message pays for it.
func TestMisuseOfQueues(t *testing.T) {
	tests := []struct{ args, says string }{
		{"push", "accepts"},
		{"push q a b", "accepts"},
		{"push q a --lines", "give one"},
		{"push q a --priority 10", "0 to 9"},
		{"push q a --priority -1", "priority"},
		{"push q a --delay 5", "duration"},
		{"push q a --delay 2h --ttl 1h", "nobody would ever get"},
		{"push q --lines --dedup-id x", "without --lines"},
		{"consume q", "group"},
		{"consume --group g", "accepts"},
		{"consume q --group g", "--count"},
		{"consume q --group g --count 0", "at least one"},
		{"consume q --group g --count 100001", "100000"},
		{"consume q --group NO --ack", "group"},
		{"consume q --group g --ack --nack", "give one"},
		{"consume q --group g --ack --after 1s", "--nack"},
		{"consume q --group g --reject=", "say why"},
		{"work q --group g", "want QUEUE"},
		{"work --group g -- cat", "want QUEUE"},
		{"work q r --group g -- cat", "want QUEUE"},
		{"work q -- cat", "group"},
		{"work q --group g --concurrency 0 -- cat", "--concurrency"},
		{"work q --group g --concurrency 2000 -- cat", "1024"},
		{"work q --group g --count 0 -- cat", "at least one"},
		{"work q --group g -- no-such-command-anywhere", "no message was taken"},
		{"group create q", "accepts"},
		{"group create q UP", "group"},
		{"group create q g --backoff 1s,x", "duration"},
		{"group create q g --ack-wait 30", "duration"},
		{"group update q g", "nothing to change"},
		{"group seek q g", "accepts"},
		{"group seek q g -15m", "group seek QUEUE GROUP -- -15m"},
		{"group nonsense", "unknown"},
		{"deadletter list q", "accepts"},
		{"deadletter list q g --count 0", "at least one"},
		{"deadletter redrive q g", "--all"},
		{"deadletter redrive q g 0/1 --all", "give one"},
		{"deadletter redrive q g --all --rate 0", "at least 1"},
		{"deadletter discard q g", "--all"},
		{"queue peek q --state ready", "--group"},
		{"queue peek q --group g --state gone", "in-flight"},
		{"queue peek q --count 0", "at least one"},
		{"queue find q --key a --prefix b", "give one"},
		{"queue find q --header x", "NAME=VALUE"},
		{"queue cancel q", "requires"},
		{"queue reschedule q 0/1", "--in"},
		{"queue reschedule q 0/1 --in 1h --at 2026-12-24T18:00:00Z", "--in"},
		{"queue reschedule q 0/1 --at tomorrow", "2026-12-24"},
	}
	for _, test := range tests {
		got := shell{}.run(t.Context(), strings.Fields(test.args)...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, test.says) || !strings.Contains(got.err, "nothing was tried") {
			t.Errorf("margay %s: %+v, want %q", test.args, got, test.says)
		}
	}
}
