// SPDX-License-Identifier: Apache-2.0

// Package meter registers the broker's metrics; it touches the registry that it is given, and refuses a label whose
// values are not all known beforehand: one for a stream, a tenant or a shard would grow with the catalog.
package meter

import "github.com/prometheus/client_golang/prometheus"

// Set registers metrics. The zero value registers them nowhere.
type Set struct{ to prometheus.Registerer }

// On returns a set that registers on r; nil for nowhere.
func On(r prometheus.Registerer) Set {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	return Set{r}
}

func add[C prometheus.Collector](s Set, c C) C {
	s.to.MustRegister(c)
	return c
}

// Counter registers a counter.
func (s Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Counters registers a counter for each value of a label, in their order.
func (s Set) Counters(name, help, label string, values ...string) []prometheus.Counter {
	v := add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	out := make([]prometheus.Counter, len(values))
	for i, value := range values {
		out[i] = v.WithLabelValues(value)
	}
	return out
}

// CounterFunc registers a counter that is kept elsewhere.
func (s Set) CounterFunc(name, help string, read func() uint64) {
	add(s, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(read()) }))
}

// CounterFuncs registers a counter that is kept elsewhere for each value of a label; read is given its index.
func (s Set) CounterFuncs(name, help, label string, read func(i int) uint64, values ...string) {
	for i, value := range values {
		opts := prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}}
		add(s, prometheus.NewCounterFunc(opts, func() float64 { return float64(read(i)) }))
	}
}

// Gauge registers a gauge.
func (s Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// Gauges registers a gauge for each value of a label, in their order.
func (s Set) Gauges(name, help, label string, values ...string) []prometheus.Gauge {
	v := add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label}))
	out := make([]prometheus.Gauge, len(values))
	for i, value := range values {
		out[i] = v.WithLabelValues(value)
	}
	return out
}

// GaugeFunc registers a gauge that is read when it is asked for.
func (s Set) GaugeFunc(name, help string, read func() float64) {
	add(s, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Histogram registers a histogram.
func (s Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}
