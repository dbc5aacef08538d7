// SPDX-License-Identifier: Apache-2.0

package load

import "time"

// Result is what a run showed. Its JSON is stable: fields are added, never renamed. docs/reference/benchmarks.md says how to
// read it.
type Result struct {
	// System names what was measured, with its version and whatever else makes it another case. The driver fills it in.
	System string `json:"system"`
	Spec   Spec   `json:"spec"`

	// Messages that were acknowledged (pub, latency, put), answered (get) or delivered, counted for every subscriber or watcher
	// (sub, fanout, watch), settled (work) or handed to a handler (handle), in Seconds.
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"` // messages a second

	// Latency is absent where nothing was timed (sub, work).
	Latency *Quantiles `json:"latency,omitempty"`

	ClientCPU float64 `json:"client_cpu_seconds"`
	// ClientCPUPerMessage is in microseconds, and so is the server's.
	ClientCPUPerMessage float64 `json:"client_cpu_us_per_message"`
	// Server is absent when the server is not a process of this machine.
	Server *Server `json:"server,omitempty"`

	// Errors are messages that failed, Missing those that were neither acknowledged nor delivered when the run gave up.
	Errors     int64  `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	Missing    int64  `json:"missing"`
	// Unsent are messages of the schedule of a fixed rate that were not sent a second after its end: the system did not keep
	// up. The latency counts each with the time that it had waited by then.
	Unsent int64 `json:"unsent,omitempty"`
	// Interrupted: the run was ended before it had come to its end.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Quantiles of a latency, in microseconds.
type Quantiles struct {
	// Of is what was timed, and from when.
	Of   LatencyOf `json:"of"`
	P50  float64   `json:"p50_us"`
	P90  float64   `json:"p90_us"`
	P99  float64   `json:"p99_us"`
	P999 float64   `json:"p999_us"`
	Max  float64   `json:"max_us"`
}

// LatencyOf is what a latency is the latency of.
type LatencyOf string

// At a fixed rate, time runs from when a message should have been sent, whether or not the system let it be (scheduled).
// Without one, from when it was handed over (sent): what a stall kept from being sent does not show.
const (
	AckScheduled      LatencyOf = "ack from scheduled"
	AckSent           LatencyOf = "ack from sent"
	DeliveryScheduled LatencyOf = "delivery from scheduled"
	DeliverySent      LatencyOf = "delivery from sent"
	// AnswerScheduled and AnswerSent are of a get.
	AnswerScheduled LatencyOf = "answer from scheduled"
	AnswerSent      LatencyOf = "answer from sent"
	// AllScheduled and AllSent are of a watched put, which counts once, when the last watcher has it.
	AllScheduled LatencyOf = "delivery to all from scheduled"
	AllSent      LatencyOf = "delivery to all from sent"
	// HandlerScheduled and HandlerSent are of a push, until its message is handed to its handler.
	HandlerScheduled LatencyOf = "handler from scheduled"
	HandlerSent      LatencyOf = "handler from sent"
	// DueHanded is of a message with a delay, from when it is due until it is handed out.
	DueHanded LatencyOf = "handed out from due"
	// WriteDone is of an append to a file or a log, with its flush where there is one.
	WriteDone LatencyOf = "write"
)

// Server is what the server's process took.
type Server struct {
	PID           int     `json:"pid"`
	CPU           float64 `json:"cpu_seconds"`
	CPUPerMessage float64 `json:"cpu_us_per_message"`
	// RSS is the highest resident memory that was seen during the run.
	RSS int64 `json:"rss_bytes"`
}

// Progress is what a run shows while it goes on.
type Progress struct {
	Phase    string // what it is doing
	Messages int64  // acknowledged or delivered in this phase
	Errors   int64
	Elapsed  time.Duration
}
