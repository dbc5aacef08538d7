// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"
)

// Workload is what is done to a system.
type Workload string

// The workloads.
const (
	// Pub publishes as fast as the windows let it: how many acknowledgements a second.
	Pub Workload = "pub"
	// Latency publishes at a fixed rate: how long from when a message should have been sent to its acknowledgement.
	Latency Workload = "latency"
	// Sub replays from the oldest message what was published before.
	Sub Workload = "sub"
	// Fanout publishes while subscribers receive: deliveries a second, and the time from sending to each of them.
	// With one subscriber it is one way through the system.
	Fanout Workload = "fanout"
	// Put puts values of keys, as fast as the windows let it or at a rate: how many acknowledgements a second.
	Put Workload = "put"
	// Get puts all keys, and then gets them in a random order: how many answers a second.
	Get Workload = "get"
	// Watch puts while watchers watch: deliveries a second, of every put to every watcher, and the time from sending until
	// all of them have it.
	Watch Workload = "watch"
	// Work pushes messages, and then has consumers work them off: acknowledgements confirmed a second.
	Work Workload = "work"
	// Handle pushes while consumers handle: messages a second, and the time from sending to when each is handed to its handler. A
	// message is under way until its acknowledgement is confirmed.
	Handle Workload = "handle"
)

// Workloads are all of them.
func Workloads() []Workload {
	return []Workload{Pub, Latency, Sub, Fanout, Put, Get, Watch, Work, Handle}
}

// HasKeys says whether it needs a KV, in place of a System with messages.
func (w Workload) HasKeys() bool { return w == Put || w == Get || w == Watch }

// HasQueue says whether it needs a Queue.
func (w Workload) HasQueue() bool { return w == Work || w == Handle }

// counted says whether the number of messages ends it: they are all there before the first is looked at.
func (w Workload) counted() bool { return w == Sub || w == Work }

// Spec says what to measure. It is part of every result.
type Spec struct {
	Workload Workload `json:"workload"`
	// Clients publish, or push, over a connection each.
	Clients int `json:"clients"`
	// InFlight bounds, for each client, the messages without an acknowledgement, or the gets without an answer; with Fanout and
	// Watch, the messages that not every subscriber, or watcher, has got; with Handle, those that are not settled.
	InFlight int `json:"in_flight"`
	// Size of a message in bytes, StampSize at least.
	Size int `json:"size"`
	// Messages in all, or Duration: one of them ends the run. Sub and Work know Messages only.
	Messages int64         `json:"messages,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Rate is messages a second of all clients together. 0 is as fast as possible.
	Rate float64 `json:"rate,omitempty"`
	// Warmup goes before what is measured, in the same way, and is not counted.
	Warmup time.Duration `json:"warmup_ns,omitempty"`
	// Subscribers receive all messages each, over Connections.
	Subscribers int `json:"subscribers,omitempty"`
	Connections int `json:"connections,omitempty"`
	// Watchers of Watch watch the keys that are put. Those of Put watch all keys, and take Pace for each change: they are there to
	// be in the way. Both share Connections.
	Watchers int           `json:"watchers,omitempty"`
	Watch    Watched       `json:"watch,omitempty"`
	Pace     time.Duration `json:"pace_ns,omitempty"`
	// Keys that are put, or got, of KeySize bytes. Puts go round them, unless they are Random, as gets are.
	Keys    int  `json:"keys,omitempty"`
	KeySize int  `json:"key_size,omitempty"`
	Random  bool `json:"random,omitempty"`
	// Consumers of Work and Handle share the messages, over Connections. MaxInFlight bounds what is out with each; Ordered has the
	// messages of a key, which are drawn from Keys, handed out one after the other.
	Consumers   int  `json:"consumers,omitempty"`
	MaxInFlight int  `json:"max_in_flight,omitempty"`
	Ordered     bool `json:"ordered,omitempty"`
	// Shards is in how many parts the system is to divide the messages, where it can.
	Shards int `json:"shards"`
	// Prepared: the messages of Sub are there already.
	Prepared bool `json:"prepared,omitempty"`
}

// Flags defines the flags that every driver has: those of the workload, or, when that is empty, those of all and one to say
// which. Call Fill and Validate once they are parsed.
func Flags(fs *flag.FlagSet, w Workload) *Spec {
	s := &Spec{Workload: w}
	def := Spec{Workload: w} // what help shows; without a workload, Fill decides later
	if w == "" {
		fs.Func("workload", fmt.Sprintf("what to do: one of %v", Workloads()), func(v string) error {
			s.Workload = Workload(v)
			return nil
		})
	} else {
		def.Fill()
	}
	if !w.counted() {
		s.publishFlags(fs, &def)
	}
	what, part := "message", "stream"
	switch {
	case w.HasKeys():
		what, part = "value", "cache"
	case w.HasQueue():
		part = "queue"
	}
	fs.IntVar(&s.Size, "size", 128, "bytes of a "+what)
	if w.counted() {
		fs.Int64Var(&s.Messages, "messages", 0, "messages to "+map[Workload]string{Sub: "read", Work: "work off"}[w]+" (default 1,000,000, or what makes 1 GiB)")
	} else {
		fs.Int64Var(&s.Messages, "messages", 0, "end after so many messages, in place of --duration")
	}
	if w == "" || w == Sub || w == Fanout {
		fs.IntVar(&s.Subscribers, "subscribers", def.Subscribers, "subscribers, each of which gets all messages")
		fs.IntVar(&s.Connections, "connections", 0, "connections that the receivers share (default: each has its own)")
	}
	if w == "" || w == Sub {
		fs.BoolVar(&s.Prepared, "prepared", false, "the messages are there already: publish none before reading")
	}
	if w == "" || w.HasKeys() {
		s.keyFlags(fs, &def)
	}
	if w == "" || w.HasQueue() {
		s.queueFlags(fs)
	}
	fs.IntVar(&s.Shards, "shards", 1, "shards of the "+part+" that is made for the run")
	return s
}

func (s *Spec) publishFlags(fs *flag.FlagSet, def *Spec) {
	who := "publishers"
	if s.Workload.HasKeys() {
		who = "clients"
	}
	fs.IntVar(&s.Clients, "clients", def.Clients, who+", each with a connection of its own")
	window := "messages that each client has on their way"
	switch s.Workload {
	case Fanout:
		window += ": sent, and not with all subscribers yet"
	case Get:
		window = "gets that each client has on their way"
	case Put:
		window = "puts that each client has on their way"
	case Handle:
		window += ": sent, and not settled yet (default 1)"
	case Watch:
		window = "puts that each client has on their way: sent, and not with all watchers yet"
	default:
	}
	fs.IntVar(&s.InFlight, "in-flight", def.InFlight, window)
	fs.Var((*durationValue)(&s.Duration), "duration", "how long to measure (default 10s)")
	fs.DurationVar(&s.Warmup, "warmup", time.Second, "do the same for so long before the measurement begins")
	fs.Float64Var(&s.Rate, "rate", def.Rate, "messages a second of all clients together; 0 is as fast as possible")
}

// durationValue is a duration as a flag that shows no default.
type durationValue time.Duration

func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *durationValue) Set(v string) error {
	n, err := time.ParseDuration(v)
	*d = durationValue(n)
	return err
}

// Fill sets what was not said.
func (s *Spec) Fill() {
	fill := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	fill(&s.Clients, 1)
	fill(&s.Shards, 1)
	fill(&s.Size, 128)
	if s.Workload == Fanout {
		fill(&s.InFlight, 1000)
	}
	if s.Workload.HasKeys() {
		s.fillKeys(fill)
	}
	if s.Workload.HasQueue() {
		s.fillQueue(fill)
	}
	fill(&s.InFlight, 500)
	if s.Workload == Latency && s.Rate == 0 {
		s.Rate = 10_000
	}
	switch {
	case s.Workload.counted() && s.Messages == 0 && s.Duration == 0:
		s.Messages = min(1_000_000, 1<<30/int64(max(s.Size, 1)))
	case s.Messages == 0 && s.Duration == 0:
		s.Duration = 10 * time.Second
	}
	if s.Workload == Sub || s.Workload == Fanout {
		fill(&s.Subscribers, 1)
		fill(&s.Connections, s.Subscribers)
	}
}

// Validate returns all faults.
func (s *Spec) Validate() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(slices.Contains(Workloads(), s.Workload), "--workload %q: want one of %v", s.Workload, Workloads())
	must(s.Clients >= 1 && s.Clients <= 10_000, "--clients %d: want 1 to 10,000", s.Clients)
	must(s.InFlight >= 1 && s.InFlight <= 1_000_000, "--in-flight %d: want 1 to 1,000,000", s.InFlight)
	must(s.Size >= StampSize && s.Size <= 8<<20, "--size %d: want %d (a message begins with its time) to 8388608", s.Size, StampSize)
	must(s.Messages >= 0, "--messages %d: want 1 or more", s.Messages)
	must(s.Duration >= 0, "--duration %v: want more than 0s", s.Duration)
	must(s.Messages == 0 || s.Duration == 0, "--messages and --duration: give one of them")
	must(s.Warmup >= 0, "--warmup %v: want 0s or more", s.Warmup)
	must(s.Rate >= 0 && s.Rate <= 1e8, "--rate %v: want 0 (as fast as possible) to 100,000,000", s.Rate)
	must(s.Workload != Sub || s.Duration == 0 && s.Rate == 0, "--duration and --rate: sub reads --messages, as fast as it can")
	errs = append(append(errs, s.validateKeys()...), s.validateQueue()...)
	must(s.Shards >= 1, "--shards %d: want 1 or more", s.Shards)
	must(s.Subscribers >= 0 && s.Subscribers <= 100_000, "--subscribers %d: want 1 to 100,000", s.Subscribers)
	if !s.Workload.HasKeys() && !s.Workload.HasQueue() {
		must(s.Connections >= 0 && s.Connections <= s.Subscribers, "--connections %d: want 1 to --subscribers, which is %d", s.Connections, s.Subscribers)
	}
	return errors.Join(errs...)
}
