// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"margay.dev/broker/ingress"
)

// Limits bound what clients can take of a broker. A zero field takes the default named beside it.
type Limits struct {
	Connections        int           // in all; 10,000
	Subscriptions      int           // per connection; 4,096
	InFlight           int64         // bytes of unanswered publishes in all; 128 MiB
	InFlightConnection int64         // the same per connection; 64 MiB
	AuthTimeout        time.Duration // from connecting to a valid token; 10 s
}

func (l Limits) apply(c *ingress.Config) {
	c.MaxConnections, c.MaxSubscriptions = l.Connections, l.Subscriptions
	c.InFlightBroker, c.InFlightConnection = l.InFlight, l.InFlightConnection
	c.AuthTimeout = l.AuthTimeout
}
