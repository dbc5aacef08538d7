// SPDX-License-Identifier: Apache-2.0

package ingress

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connections, subscriptions            prometheus.Gauge
	refused, authFailures, protocolErrors prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	m := &metrics{
		connections:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "margay_connections", Help: "Client connections being served."}),
		subscriptions:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "margay_subscriptions", Help: "Subscriptions being served."}),
		refused:        prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_connections_refused_total", Help: "Connections refused because there were too many."}),
		authFailures:   prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_auth_failures_total", Help: "Tokens that were not valid."}),
		protocolErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_protocol_errors_total", Help: "Connections closed because the peer broke the framing."}),
	}
	r.MustRegister(m.connections, m.subscriptions, m.refused, m.authFailures, m.protocolErrors)
	return m
}
