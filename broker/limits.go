// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"time"

	"margay.dev/broker/ingress"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// Limits bound what clients can take of a broker. A zero field takes the default named beside it. Sizes are told to
// every client in the hello.
type Limits struct {
	Connections           int           // in all; 10,000
	ConnectionsPerAddress int           // from one IP address; no limit of its own
	Subscriptions         int           // per connection; 4,096
	InFlight              int64         // bytes of unanswered publishes in all; 128 MiB
	InFlightConnection    int64         // the same per connection; 64 MiB
	AuthTimeout           time.Duration // from connecting to a valid token; 10 s

	Frame   int          // bytes of a frame's body; 16 MiB, which is the most, and 64 KiB at least
	Records batch.Limits // of a batch and its records; those of package batch
}

// Defaults of Limits.
const (
	DefaultConnections        = ingress.DefaultConnections
	DefaultSubscriptions      = ingress.DefaultSubscriptions
	DefaultInFlight           = ingress.DefaultInFlight
	DefaultInFlightConnection = ingress.DefaultInFlightConnection
	DefaultAuthTimeout        = ingress.DefaultAuthTimeout
)

// Validate reports every fault.
func (l Limits) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("limits: "+format, args...)) }
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"Connections", int64(l.Connections)},
		{"ConnectionsPerAddress", int64(l.ConnectionsPerAddress)},
		{"Subscriptions", int64(l.Subscriptions)},
		{"InFlight", l.InFlight},
		{"InFlightConnection", l.InFlightConnection},
		{"AuthTimeout", int64(l.AuthTimeout)},
		{"Frame", int64(l.Frame)},
		{"Records.Batch", int64(l.Records.Batch)},
		{"Records.Record", int64(l.Records.Record)},
		{"Records.Key", int64(l.Records.Key)},
		{"Records.Headers", int64(l.Records.Headers)},
		{"Records.HeaderBytes", int64(l.Records.HeaderBytes)},
		{"Records.Records", int64(l.Records.Records)},
	} {
		if f.v < 0 {
			fault("%s %d is below 0", f.name, f.v)
		}
	}
	is := l.WithDefaults()
	atMost := func(name string, v, most int64, what string) {
		if v > most {
			fault("%s %d is above %d, %s", name, v, most, what)
		}
	}
	atMost("ConnectionsPerAddress", int64(is.ConnectionsPerAddress), int64(is.Connections), "the connections in all")
	atMost("InFlightConnection", is.InFlightConnection, is.InFlight, "what may be in flight in all")
	atMost("Frame", int64(is.Frame), wire.MaxFrame, "the most that the protocol has")
	if is.Frame < wire.MaxFrameBeforeAuth {
		fault("Frame %d is below %d, which a client may send before it shows a token", is.Frame, wire.MaxFrameBeforeAuth)
	}
	atMost("Records.Batch", int64(is.Records.Batch), int64(min(batch.MaxBatch, is.Frame-wire.PublishHead)), "what a frame holds")
	atMost("Records.Record", int64(is.Records.Record), int64(is.Records.Batch), "the batch")
	atMost("Records.Key", int64(is.Records.Key), batch.MaxKey, "the most that other parts of the protocol hold")
	atMost("Records.HeaderBytes", int64(is.Records.HeaderBytes), int64(is.Records.Record), "the record")
	atMost("Records.Headers", int64(is.Records.Headers), maxHeaders, "the most that a hello can tell")
	return errors.Join(errs...)
}

const maxHeaders = 1<<16 - 1

// WithDefaults fills in what is not set. A smaller frame or batch takes the defaults of what lies in it along.
func (l Limits) WithDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	defInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	defInt(&l.Connections, DefaultConnections)
	defInt(&l.Subscriptions, DefaultSubscriptions)
	def(&l.InFlight, DefaultInFlight)
	def(&l.InFlightConnection, min(DefaultInFlightConnection, l.InFlight))
	defInt(&l.Frame, wire.MaxFrame)
	r := &l.Records
	defInt(&r.Batch, min(batch.MaxBatch, max(l.Frame-wire.PublishHead, 0)))
	defInt(&r.Record, min(batch.MaxRecord, r.Batch))
	defInt(&r.HeaderBytes, min(batch.MaxHeaderBytes, r.Record))
	*r = r.Effective()
	if l.AuthTimeout <= 0 {
		l.AuthTimeout = DefaultAuthTimeout
	}
	return l
}

func (l Limits) apply(c *ingress.Config) {
	l = l.WithDefaults()
	c.MaxConnections, c.MaxPerAddress, c.MaxSubscriptions = l.Connections, l.ConnectionsPerAddress, l.Subscriptions
	c.InFlightBroker, c.InFlightConnection = l.InFlight, l.InFlightConnection
	c.AuthTimeout = l.AuthTimeout
	c.MaxFrame, c.Batch = l.Frame, l.Records
}
