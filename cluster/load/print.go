// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Print writes a result for people. The latency is never one number.
func Print(w io.Writer, r *Result) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&b, "%s: %s\n", r.System, r.Spec.describe())
	what := "acknowledged"
	switch r.Spec.Workload {
	case Sub, Fanout, Watch:
		what = "delivered"
	case Get:
		what = "answered"
	case Work:
		what = "settled"
	case Handle:
		what = "handled"
	default:
	}
	line("rate", "%s/s   %.1f MB/s   %s %s in %.2f s", Thousands(int64(r.Rate)), r.Rate*float64(r.Spec.Size)/1e6, Thousands(r.Messages), what, r.Seconds)
	if l := r.Latency; l != nil {
		line("latency", "p50 %s   p90 %s   p99 %s   p99.9 %s   max %s", Span(l.P50), Span(l.P90), Span(l.P99), Span(l.P999), Span(l.Max))
		line("", "%s", l.Of.explain())
	}
	if r.Server != nil {
		line("CPU", "server %s, client %s per message", Span(r.Server.CPUPerMessage), Span(r.ClientCPUPerMessage))
		line("memory", "server %s at most", Bytes(r.Server.RSS))
	} else {
		line("CPU", "client %s per message; the server is not a process that can be read from here", Span(r.ClientCPUPerMessage))
	}
	if r.Unsent > 0 {
		line("unsent", "%s messages of the schedule: this rate is more than was kept up with", Thousands(r.Unsent))
	}
	if r.Errors > 0 {
		line("errors", "%s", Thousands(r.Errors))
	}
	if r.Missing > 0 {
		line("missing", "%s, given up", Thousands(r.Missing))
	}
	if r.FirstError != "" {
		line("first", "%s", r.FirstError)
	}
	if r.Interrupted {
		line("note", "interrupted: this is what there was by then")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe says in words what was done.
func (s *Spec) describe() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if !s.Workload.counted() {
		add("%s of %d in flight", count(s.Clients, "client"), s.InFlight)
	}
	if s.Workload == Sub || s.Workload == Fanout {
		add("%s on %s", count(s.Subscribers, "subscriber"), count(s.Connections, "connection"))
	}
	if s.Watchers > 0 {
		add("%s of %s on %s", count(s.Watchers, "watcher"), s.watched(), count(s.Connections, "connection"))
	}
	if s.Workload.HasQueue() {
		add("%s with %s out at most on %s", count(s.Consumers, "consumer"), Thousands(int64(s.MaxInFlight)), count(s.Connections, "connection"))
	}
	if s.Keys > 0 {
		add("%s", count(s.Keys, "key"))
	}
	if s.Ordered {
		add("in order of keys")
	}
	add("%s", Bytes(int64(s.Size)))
	add("%s", count(s.Shards, "shard"))
	if s.Rate > 0 {
		add("%s/s", Thousands(int64(s.Rate)))
	}
	return string(s.Workload) + ", " + strings.Join(parts, ", ")
}

// watched is what the watchers watch.
func (s *Spec) watched() string {
	if s.Workload == Put {
		return fmt.Sprintf("all that take %v for a change", s.Pace)
	}
	return "one " + string(s.Watch)
}

func (of LatencyOf) explain() string {
	switch of {
	case AllScheduled:
		return "until the last watcher has it, from when the schedule had the put"
	case AllSent:
		return "until the last watcher has it, from when the put was sent; what a stall held back does not show: see --rate"
	case AckScheduled:
		return "to the acknowledgement, from when the schedule had the message"
	case AckSent:
		return "to the acknowledgement, from when the message was sent; what a stall held back does not show: see --rate"
	case AnswerScheduled:
		return "to the answer, from when the schedule had the get"
	case AnswerSent:
		return "to the answer, from when the get was sent; what a stall held back does not show: see --rate"
	case DeliveryScheduled:
		return "to the delivery, from when the schedule had the message"
	case DeliverySent:
		return "to the delivery, from when the message was sent; what a stall held back does not show: see --rate"
	case HandlerScheduled:
		return "until it is handed to its handler, from when the schedule had the push"
	case HandlerSent:
		return "until it is handed to its handler, from when the push was sent; what a stall held back does not show: see --rate"
	case DueHanded:
		return "until it is handed out, from when it was due"
	case WriteDone:
		return "of a write, with its flush"
	}
	return string(of)
}

// Span writes microseconds with three digits.
func Span(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 1:
		return fmt.Sprintf("%.0f ns", us*1e3)
	case us < 1e3:
		return digitsOf(us) + " µs"
	case us < 1e6:
		return digitsOf(us/1e3) + " ms"
	}
	return digitsOf(us/1e6) + " s"
}

func digitsOf(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Bytes writes a size with three digits.
func Bytes(n int64) string {
	switch {
	case n < 4<<10:
		return fmt.Sprintf("%d B", n)
	case n < 4<<20:
		return digitsOf(float64(n)/(1<<10)) + " KiB"
	case n < 4<<30:
		return digitsOf(float64(n)/(1<<20)) + " MiB"
	}
	return digitsOf(float64(n)/(1<<30)) + " GiB"
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Thousands(int64(n)) + " " + thing + "s"
}

// Thousands writes a whole number with a comma between each three digits.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// String is a line for a person who waits.
func (p Progress) String() string {
	s := fmt.Sprintf("%s: %s messages, %v", p.Phase, Thousands(p.Messages), p.Elapsed.Round(time.Second))
	if p.Errors > 0 {
		s += fmt.Sprintf(", %s errors", Thousands(p.Errors))
	}
	return s
}
