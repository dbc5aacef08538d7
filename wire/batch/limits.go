// SPDX-License-Identifier: Apache-2.0

package batch

import "time"

// Default limits, told to every client in the hello. MaxBatch is also the absolute bound: no stored batch is
// larger, whatever the configuration was when it was written.
const (
	MaxBatch       = 8 << 20  // whole batch as it would be without compression
	MaxRecord      = 8 << 20  // key, headers and value of one record; in effect a little less, see MaxBatch
	MaxKey         = 4 << 10  // bytes of a key
	MaxHeaders     = 64       // headers of a record
	MaxHeaderBytes = 16 << 10 // headers of a record as encoded
	MaxRecords     = 10_000   // records of a batch
	MaxDedupID     = 128      // bytes of a dedup id; frozen, no configuration changes it
)

// MaxSchedule bounds delay and time to live (some 285 years), so that no deadline overflows.
const MaxSchedule = (1 << 53) * time.Microsecond

const (
	maxDecodeCount = 1 << 20 // records or entries a decoder accepts, whatever the limits were at write time
	maxScheduleUs  = uint64(MaxSchedule / time.Microsecond)
)

// Limits bound what a producer may send. A zero field means the default; nothing may be set above MaxBatch
// (or 1<<20 records), because decoders would refuse it for ever.
type Limits struct {
	Batch       int
	Record      int
	Key         int
	Headers     int
	HeaderBytes int
	Records     int
}

// Effective fills in the defaults.
func (l Limits) Effective() Limits {
	return Limits{
		Batch:       bound(l.Batch, MaxBatch, MaxBatch),
		Record:      bound(l.Record, MaxRecord, MaxBatch),
		Key:         bound(l.Key, MaxKey, MaxBatch),
		Headers:     bound(l.Headers, MaxHeaders, MaxBatch),
		HeaderBytes: bound(l.HeaderBytes, MaxHeaderBytes, MaxBatch),
		Records:     bound(l.Records, MaxRecords, maxDecodeCount),
	}
}

func bound(v, def, most int) int {
	if v <= 0 {
		return def
	}
	return min(v, most)
}
