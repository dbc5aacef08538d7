// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// counted waits for a sample to be at least (or, with exact, exactly) a value.
func counted(t *testing.T, n *margaytest.Node, sample string, want float64, exact bool) {
	t.Helper()
	var got string
	eventually(t, sample+" to count", func() bool {
		got = metric(t, n, sample)
		v, err := strconv.ParseFloat(got, 64)
		return err == nil && (v == want || v > want && !exact)
	})
}

// What an operator is told of publishes, subscriptions and logs is what has happened.
func TestMetricsCountWhatHappens(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", MinAck: new("leader")})
	c := n.Connect()
	fill(t, c, "s", 0, 100)
	counted(t, n, `margay_publish_records_total{result="stored"}`, 100, true)
	counted(t, n, `margay_publish_ack_seconds_count`, 1, false)
	counted(t, n, `margay_token_verifications_total{result="valid"}`, 2, false)
	counted(t, n, `margay_shards{state="open"}`, 1, true)

	r := dial(t, n).authenticate(n)
	lane := r.lane()
	var info wire.LogInfo
	r.want(lane, &wire.Lookup{Name: "default/default/s"}, &info)
	one := &wire.Publish{Log: info.Log, Batch: built(t, []client.Record{{Value: []byte("v")}})}
	r.wantError(lane, wire.AppendFrame(nil, 77, &wire.Publish{Log: info.Log, Batch: one.Batch, Ack: wire.AckNone}), code.BadRequest)
	counted(t, n, `margay_publishes_total{result="fatal"}`, 1, true)
	counted(t, n, `margay_errors_total{code="bad_request"}`, 1, true)
	r.wantError(lane, wire.AppendFrame(nil, 77, &wire.Publish{Log: info.Log, Shard: 7, Batch: one.Batch}), code.NotFound)
	counted(t, n, `margay_publishes_total{result="fatal"}`, 2, true)

	take(t, subscribe(t, c, "s", client.FromEarliest()), 100)
	counted(t, n, `margay_delivery_records_total`, 100, true)
	counted(t, n, `margay_delivery_bytes_total`, 1000, false)
	counted(t, n, `margay_subscriptions`, 1, true)
	if _, err := c.Trim(within(t), "s", client.TrimBeforeOffset(0, 60)); err != nil {
		t.Fatal(err)
	}
	counted(t, n, `margay_log_start_records_total{cause="trim"}`, 60, true)
	counted(t, n, `margay_log_start_moves_total{cause="trim"}`, 1, true)
	take(t, subscribe(t, c, "s", client.FromOffset(0, 10), client.SkipLost()), 40)
	if _, err := limited(t, n, "default", token.Grant{Actions: []token.Action{token.Subscribe}, Resource: "default/default/s"}).
		Publisher("default/default/s").Publish(within(t), client.Record{}); err == nil {
		t.Error("a reader may write")
	}
	counted(t, n, `margay_errors_total{code="permission_denied"}`, 1, false)
	if _, err := client.Connect(within(t), n.URL(), client.WithCA([]byte(n.Context().CA)), client.WithToken("no.such.token")); err == nil {
		t.Error("a token that is none is taken")
	}
	counted(t, n, `margay_token_verifications_total{result="invalid"}`, 1, false)
}

// SB-12, SB-14: what waits for slow subscribers is told while it waits, bounded, and gone with them; each way out
// of a full queue is counted.
func TestMetricsOfSlowSubscribers(t *testing.T) {
	for _, c := range []struct {
		policy client.Policy
		sample string
	}{
		{client.PolicyDropNew, `margay_gap_records_total{reason="dropped"}`},
		{client.PolicyDropOld, `margay_gap_records_total{reason="dropped"}`},
		{client.PolicyCatchUp, `margay_catch_ups_total`},
		{client.PolicyDisconnect, `margay_slow_consumers_total`},
	} {
		t.Run(fmt.Sprint("policy ", c.policy), func(t *testing.T) {
			n := margaytest.Start(t)
			create(t, n, control.StreamSpec{Name: "s"})
			const queue = 256 << 10
			cl := n.Connect()
			s := subscribe(t, cl, "s", client.Overflow(c.policy), client.QueueLimits(10_000, queue), client.ReceiveBuffer(32<<10))
			p := n.Connect().Publisher("s")
			most := 0.0
			for range 40 {
				for range 100 {
					p.PublishAsync(within(t), client.Record{Value: make([]byte, 10<<10)}) // 40 MB in all
				}
				if err := p.Flush(within(t)); err != nil {
					t.Fatal(err)
				}
				v, err := strconv.ParseFloat(metric(t, n, "margay_subscription_queue_bytes"), 64)
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, v)
			}
			// A batch larger than the bound fits an empty queue. Who leaves the queue when it is full may have emptied it
			// by the time somebody looks.
			leaves := c.policy == client.PolicyCatchUp || c.policy == client.PolicyDisconnect
			if (most == 0 && !leaves) || most > 2*queue+2<<20 {
				t.Errorf("at most %v bytes waited in a queue of %d", most, queue)
			}
			var reader sync.WaitGroup
			reader.Go(func() {
				for _, err := range s.Records(t.Context()) {
					if err != nil {
						return
					}
				}
			})
			eventually(t, c.sample+" to count", func() bool { // a loss is told with the record that follows it
				if _, err := p.Publish(within(t), client.Record{}); err != nil {
					t.Fatal(err)
				}
				v, err := strconv.ParseFloat(metric(t, n, c.sample), 64)
				return err == nil && v > 0
			})
			s.Close()
			reader.Wait()
			counted(t, n, "margay_subscriptions", 0, true)
			counted(t, n, "margay_subscription_queue_bytes", 0, true)
			counted(t, n, "margay_subscription_queue_records", 0, true)
			counted(t, n, "margay_inbox_bytes", 0, true)
			counted(t, n, transport("margay_transport_outbound_bytes"), 0, true)
		})
	}
}
