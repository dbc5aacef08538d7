// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"testing"
	"time"

	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// What a log keeps is told to who agreed on reading it: the answer to another is without, or it could not be read.
func TestLogInfoSaysWhatIsKept(t *testing.T) {
	const before = wire.AllFeatures &^ wire.FeatureCaches
	const beforeQueues = wire.AllFeatures &^ wire.FeatureQueues
	for _, tc := range []struct {
		log    control.Log
		agreed wire.Features
		keep   wire.Keep
		ttl    uint64
	}{
		{control.Log{Preset: control.PresetStream}, wire.AllFeatures, wire.KeepAll, 0},
		{control.Log{Preset: control.PresetCache, Keep: control.KeepAll}, wire.AllFeatures, wire.KeepAll, 0},
		{control.Log{Preset: control.PresetStream, Keep: control.KeepNewest}, wire.AllFeatures, wire.KeepNewest, 0},
		{control.Log{Preset: control.PresetCache, TTL: 30 * time.Minute}, wire.AllFeatures, wire.KeepNewest, 1_800_000_000},
		{control.Log{Preset: control.PresetCache, TTL: 30 * time.Minute}, before, wire.KeepUnknown, 0},
		{control.Log{Preset: control.PresetQueue}, wire.AllFeatures, wire.KeepUnsettled, 0},
		{control.Log{Preset: control.PresetQueue}, beforeQueues, wire.KeepAll, 0},
		{control.Log{Preset: control.PresetQueue, Keep: control.KeepAll}, wire.AllFeatures, wire.KeepAll, 0},
	} {
		tc.log.SetDefaults()
		got := logInfo(&router.Log{Name: "t/n/l", Info: &tc.log, Shards: []router.Shard{{}}}, tc.agreed)
		if got.Keep != tc.keep || got.DefaultTTL != tc.ttl {
			t.Errorf("%+v to %b: keep %v, TTL %d", tc.log, tc.agreed, got.Keep, got.DefaultTTL)
		}
	}
}

// A client of before caches would take a batch of expired keys for damage, and one of before queues a record with a priority:
// it is refused the log, once there can be any.
func TestOlderClientsReadNoLogThatTheyTakeForDamaged(t *testing.T) {
	const before = wire.AllFeatures &^ wire.FeatureCaches
	for _, tc := range []struct {
		keep           string
		served, agreed wire.Features
		want           error
	}{
		{control.KeepAll, wire.AllFeatures, before, nil},
		{control.KeepNewest, wire.AllFeatures, wire.AllFeatures, nil},
		{control.KeepNewest, wire.AllFeatures, before, code.Unsupported},
		{control.KeepNewest, before, before, nil},
		{control.KeepUnsettled, wire.AllFeatures, wire.AllFeatures, nil},
		{control.KeepUnsettled, wire.AllFeatures, wire.AllFeatures &^ wire.FeatureQueues, code.Unsupported},
	} {
		if err := mayRead(&control.Log{Keep: tc.keep}, tc.served, tc.agreed); !errors.Is(err, tc.want) {
			t.Errorf("keep %s, served %b, agreed %b: %v", tc.keep, tc.served, tc.agreed, err)
		}
	}
}
