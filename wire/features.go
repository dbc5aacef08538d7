// SPDX-License-Identifier: Apache-2.0

package wire

// Features is the bit set that Hello and HelloOk exchange: which requests exist at all. It is a number
// space of its own that never appears on a frame; how a body is laid out is the business of flags. A
// client sends no request whose feature the broker did not advertise.
type Features uint64

const (
	// FeatureStreams: Lookup, Offsets, Publish and Subscribe.
	FeatureStreams Features = 1 << 0
	// FeatureFilters: filters of a Subscribe, and DeliverSlice.
	FeatureFilters Features = 1 << 1
	// FeatureCursors: durable subscriptions with Commit, CursorList and CursorDelete.
	FeatureCursors Features = 1 << 2
	// FeatureConditions: conditions of a Publish.
	FeatureConditions Features = 1 << 3
	// FeatureDedup: batches with a dedup id, and ProducerState.
	FeatureDedup Features = 1 << 4
	// FeaturePresence: SetLast and ClearLast.
	FeaturePresence Features = 1 << 5
	// FeatureTrim: Trim.
	FeatureTrim Features = 1 << 6
	// FeatureCaches: Get, List, Count and Watch, derived records of a Publish, and what LogInfo says of a log's keys.
	FeatureCaches Features = 1 << 7
	// FeatureQueues: Consume with all that stands on its lane, GroupCommand, GroupQuery and Browse; batches with a settlement or
	// a priority, and KeepUnsettled.
	FeatureQueues Features = 1 << 8
)

// AllFeatures is what this build knows.
const AllFeatures = FeatureStreams | FeatureFilters | FeatureCursors | FeatureConditions | FeatureDedup |
	FeaturePresence | FeatureTrim | FeatureCaches | FeatureQueues

// Has reports whether every feature of want is in the set.
func (f Features) Has(want Features) bool { return f&want == want }
