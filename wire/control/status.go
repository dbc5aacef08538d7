// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/http"
	"time"
)

// What Status.Verdict says.
const (
	Healthy   = "healthy"
	Degraded  = "degraded"  // it serves, and some of what it should serve it does not
	Unhealthy = "unhealthy" // it is not ready: what a probe is told too
)

// Status is how a node is at one moment.
type Status struct {
	Node      string    `json:"node"`
	Cluster   string    `json:"cluster"`
	Version   string    `json:"version"`
	Addresses []string  `json:"addresses,omitempty" doc:"Where it takes clients"`
	StartedAt time.Time `json:"started_at"`
	Time      time.Time `json:"time" doc:"The node's clock, when it answered"`

	Verdict string        `json:"verdict" enum:"healthy,degraded,unhealthy"`
	Checks  []StatusCheck `json:"checks" doc:"Those of readiness, and some that only advise"`

	Shards StatusShards `json:"shards"`
	Disk   StatusDisk   `json:"disk"`
	Memory StatusMemory `json:"memory"`
	Files  StatusUse    `json:"files" doc:"Descriptors of the process"`

	Connections   int64     `json:"connections"`
	Subscriptions int64     `json:"subscriptions"`
	InFlight      StatusUse `json:"in_flight" doc:"Bytes of publishes that have arrived and are not answered"`
	QueuedBytes   int64     `json:"queued_bytes" doc:"Bytes that wait in the queues of subscriptions"`

	Totals StatusTotals `json:"totals"`
}

// StatusCheck is one named condition.
type StatusCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
	// Advisory marks a check that does not decide: what is wrong concerns a part, and the rest is served.
	Advisory bool `json:"advisory,omitempty"`
}

// StatusShards counts the shards that the node is to lead, and names those that are not open.
type StatusShards struct {
	States  map[string]int `json:"states" doc:"How many are open, opening, waiting, no_room and quarantined"`
	Unwell  []StatusShard  `json:"unwell,omitempty" doc:"Those that are not open, the worst first; at most 100"`
	More    int            `json:"more,omitempty" doc:"How many more of them there are"`
	Unknown int            `json:"unknown_directories,omitempty" doc:"Shard directories that the catalog does not know; they are kept"`
}

// StatusShard is a shard that is not open.
type StatusShard struct {
	Log    string `json:"log"`
	Shard  uint32 `json:"shard"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// StatusDisk is the room on the data disk.
type StatusDisk struct {
	FreeBytes    uint64 `json:"free_bytes"`
	ReserveBytes uint64 `json:"reserve_bytes" doc:"Free space below which records are refused"`
	Full         bool   `json:"full"`
}

// StatusMemory is what the process holds.
type StatusMemory struct {
	ResidentBytes int64 `json:"resident_bytes" doc:"0 where the system does not say"`
	HeapBytes     int64 `json:"heap_bytes"`
	LimitBytes    int64 `json:"limit_bytes" doc:"What the runtime keeps to (GOMEMLIMIT); 0 for none"`
}

// StatusUse is how much is used of what there may be; a limit of 0 is none.
type StatusUse struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

// StatusTotals are counters since the start: two of them and the time between make rates.
type StatusTotals struct {
	Publishes   float64 `json:"publishes" doc:"Stored, those recognized as retries too"`
	RecordsIn   float64 `json:"records_in"`
	BytesIn     float64 `json:"bytes_in"`
	NotStored   float64 `json:"not_stored" doc:"Publishes refused, fatal and unknown"`
	AckSeconds  float64 `json:"ack_seconds" doc:"Sum of the time to the answer over the publishes that were stored"`
	Acks        float64 `json:"acks" doc:"How many that sum is of"`
	RecordsOut  float64 `json:"records_out"`
	BytesOut    float64 `json:"bytes_out"`
	LostRecords float64 `json:"lost_records" doc:"Offsets of gaps that subscriptions were told of"`
	Errors      float64 `json:"errors"`
	GivenUp     float64 `json:"given_up_records" doc:"Records that moves of a log's start gave up"`
	Flushes     float64 `json:"flushes"`
}

// StatusPath is where a node says how it is.
const StatusPath = "/v1/status"

// Status asks a node how it is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, StatusPath, "", nil, &s)
}
