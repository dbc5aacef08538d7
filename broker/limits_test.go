// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"strings"
	"testing"
	"time"

	"margay.dev/broker"
	"margay.dev/wire/batch"
)

// Every fault is reported at once, each with the bound that it breaks; what works is left alone.
func TestLimitsAreChecked(t *testing.T) {
	for _, c := range []struct {
		limits broker.Limits
		say    []string // nothing: it is right
	}{
		{broker.Limits{}, nil},
		{broker.Limits{Connections: 1, ConnectionsPerAddress: 1, Subscriptions: 1, AuthTimeout: time.Millisecond}, nil},
		{broker.Limits{InFlight: 1 << 20}, nil}, // that of a connection goes along
		{broker.Limits{Frame: 64 << 10}, nil},   // and so do batches and records
		{broker.Limits{Records: batch.Limits{Batch: 1 << 10}}, nil},
		{broker.Limits{Frame: 64<<10 - 1}, []string{"Frame 65535 is below 65536"}},
		{broker.Limits{Frame: 16<<20 + 1}, []string{"Frame 16777217 is above 16777216"}},
		{broker.Limits{Frame: 64 << 10, Records: batch.Limits{Batch: 64 << 10}}, []string{"Records.Batch 65536 is above"}},
		{broker.Limits{Records: batch.Limits{Record: 2 << 20, Batch: 1 << 20}}, []string{"Records.Record 2097152 is above 1048576"}},
		{broker.Limits{Records: batch.Limits{Key: 4<<10 + 1, Headers: 1 << 16}}, []string{"Records.Key 4097", "Records.Headers 65536"}},
		{broker.Limits{Connections: 5, ConnectionsPerAddress: 6}, []string{"ConnectionsPerAddress 6 is above 5"}},
		{broker.Limits{InFlight: 1 << 20, InFlightConnection: 2 << 20}, []string{"InFlightConnection 2097152 is above 1048576"}},
		{
			broker.Limits{Connections: -1, Subscriptions: -2, AuthTimeout: -3, Records: batch.Limits{HeaderBytes: -4}},
			[]string{"Connections -1", "Subscriptions -2", "AuthTimeout -3", "HeaderBytes -4"},
		},
	} {
		err := c.limits.Validate()
		if len(c.say) == 0 {
			if err != nil {
				t.Errorf("%+v: %v", c.limits, err)
			}
			continue
		}
		if err == nil || strings.Count(err.Error(), "\n")+1 != len(c.say) {
			t.Errorf("%+v: %v, want %d faults", c.limits, err, len(c.say))
			continue
		}
		for _, say := range c.say {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%+v: %v does not say %q", c.limits, err, say)
			}
		}
	}
}
