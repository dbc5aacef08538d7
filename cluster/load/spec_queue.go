// SPDX-License-Identifier: Apache-2.0

package load

import (
	"flag"
	"fmt"
)

// defaultMaxInFlight is how many messages are out with a consumer.
const defaultMaxInFlight = 1000

// queueFlags are those of work and handle.
func (s *Spec) queueFlags(fs *flag.FlagSet) {
	w := s.Workload
	fs.IntVar(&s.Consumers, "consumers", 0, "consumers, which share the messages (default 4; 1 with handle)")
	fs.IntVar(&s.MaxInFlight, "max-in-flight", 0, fmt.Sprintf("messages that are out with each consumer and not settled, at most (default %d)", defaultMaxInFlight))
	if w != Handle {
		fs.BoolVar(&s.Ordered, "ordered", false, "messages of a key are handed out one after the other")
	}
	if w == "" {
		return // others have these, too
	}
	fs.IntVar(&s.Connections, "connections", 0, "connections that the consumers share (default: each has its own)")
	if w == Work {
		fs.IntVar(&s.Keys, "keys", 0, "keys that the messages draw from (default: they have none)")
	}
}

// fillQueue is Fill for them.
func (s *Spec) fillQueue(fill func(*int, int)) {
	if s.Workload == Handle {
		fill(&s.InFlight, 1)
		fill(&s.Consumers, 1)
	}
	fill(&s.Consumers, 4)
	fill(&s.MaxInFlight, defaultMaxInFlight)
	fill(&s.Connections, s.Consumers)
	if s.Keys > 0 {
		fill(&s.KeySize, defaultKeySize)
	}
}

// validateQueue is Validate for what only they have.
func (s *Spec) validateQueue() (errs []error) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if !s.Workload.HasQueue() {
		must(s.Consumers == 0 && s.MaxInFlight == 0 && !s.Ordered, "--consumers, --max-in-flight and --ordered: for work and handle only")
		return errs
	}
	must(s.Consumers >= 1 && s.Consumers <= 100_000, "--consumers %d: want 1 to 100,000", s.Consumers)
	must(s.MaxInFlight >= 1 && s.MaxInFlight <= 100_000, "--max-in-flight %d: want 1 to 100,000", s.MaxInFlight)
	must(s.Connections >= 0 && s.Connections <= s.Consumers, "--connections %d: want 1 to --consumers, which is %d", s.Connections, s.Consumers)
	must(s.Keys >= 0 && s.Keys <= 10_000_000 && (s.Keys == 0 || s.Workload == Work), "--keys %d: want 1 to 10,000,000, and for work only", s.Keys)
	must(s.Keys == 0 || s.KeySize >= defaultKeySize && s.KeySize <= 1024, "--key-size %d: want %d to 1024", s.KeySize, defaultKeySize)
	must(!s.Ordered || s.Keys > 0, "--ordered: messages without a key have no order: give --keys")
	must(s.Workload != Work || s.Duration == 0 && s.Rate == 0, "--duration and --rate: work settles --messages, as fast as it can")
	must(s.Subscribers == 0 && s.Watchers == 0, "--subscribers and --watchers: a queue has --consumers")
	return errs
}
