// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/router"
)

const (
	// namedGroups is how many groups have metrics of their own; those of the others are added up.
	namedGroups = 1000
	// scrapeWithin is how long a scrape waits for shards. Of one that takes longer it tells what it heard before.
	scrapeWithin = time.Second
	// scrapeAtOnce is how many shards are asked at the same time.
	scrapeAtOnce = 16
)

// GroupMetrics says at each scrape how the groups of a broker stand, added up over their shards here.
type GroupMetrics struct {
	shards func() []*host.Shard
	table  *router.Table
	wall   func() time.Time
	kinds  []kind
	count  *prometheus.Desc

	mu    sync.Mutex
	heard map[*host.Shard][]standing // of the last scrape that heard of a shard
}

// standing is how a group stands in one shard, or in several.
type standing struct {
	group.Info
	oldest int64 // us; 0 for none
}

// kind is one metric.
type kind struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	of   func(s *standing, now int64) float64
}

// NewGroupMetrics makes the metrics of the groups of these shards.
func NewGroupMetrics(shards func() []*host.Shard, table *router.Table, wall func() time.Time) *GroupMetrics {
	m := &GroupMetrics{
		shards: shards, table: table, wall: wall, heard: map[*host.Shard][]standing{},
		count: prometheus.NewDesc("margay_groups", "Consumer groups of the logs that have shards here.", nil, nil),
	}
	add := func(typ prometheus.ValueType, name, help string, of func(s *standing, now int64) float64) {
		m.kinds = append(m.kinds, kind{prometheus.NewDesc("margay_group_"+name, help, []string{"log", "group"}, nil), typ, of})
	}
	gauge := func(name, help string, of func(s *standing) uint64) {
		add(prometheus.GaugeValue, name, help, func(s *standing, _ int64) float64 { return float64(of(s)) })
	}
	counter := func(name, help string, of func(s *standing) uint64) {
		add(prometheus.CounterValue, name+"_total", help, func(s *standing, _ int64) float64 { return float64(of(s)) })
	}
	gauge("ready", "Messages that wait to be handed out; with those whose delay nobody has looked at yet.", func(s *standing) uint64 { return s.Ready })
	gauge("in_flight", "Messages that are handed out and not settled.", func(s *standing) uint64 { return s.InFlight })
	gauge("delayed", "Messages that are known to be due later.", func(s *standing) uint64 { return s.Delayed })
	gauge("dead", "Dead letters.", func(s *standing) uint64 { return s.Dead })
	add(prometheus.GaugeValue, "oldest_seconds", "Age of the oldest message that is not settled.", func(s *standing, now int64) float64 { return since(s.oldest, now) })
	add(prometheus.GaugeValue, "stalled_seconds", "How long something has been ready for a consumer that may have it, and nothing was handed out. Not 0 for long is a fault.",
		func(s *standing, now int64) float64 { return since(s.StalledAt, now) })
	counter("acked", "Messages that were acked.", func(s *standing) uint64 { return s.Totals.Acked })
	counter("attempts", "Attempts that ended otherwise: each led to another, or to a dead letter.", func(s *standing) uint64 { return s.Totals.Attempts })
	counter("dead_letters", "Messages that became dead letters.", func(s *standing) uint64 { return s.Totals.Dead })
	counter("redriven", "Dead letters that were put back.", func(s *standing) uint64 { return s.Totals.Redriven })
	counter("discarded", "Dead letters that were discarded.", func(s *standing) uint64 { return s.Totals.Discarded })
	counter("expired", "Messages whose time to live ended before somebody had them.", func(s *standing) uint64 { return s.Totals.Expired })
	counter("cancelled", "Messages that were canceled.", func(s *standing) uint64 { return s.Totals.Cancelled })
	counter("lost", "Messages that retention or a trim took before they were settled.", func(s *standing) uint64 { return s.Totals.Lost })
	return m
}

func since(at, now int64) float64 {
	if at == 0 {
		return 0
	}
	return max(0, time.Duration(now-at)*time.Microsecond).Seconds()
}

// Describe implements prometheus.Collector.
func (m *GroupMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.count
	for i := range m.kinds {
		to <- m.kinds[i].desc
	}
}

// Collect implements prometheus.Collector.
func (m *GroupMetrics) Collect(to chan<- prometheus.Metric) {
	all := m.sum(m.ask())
	to <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(len(all)))
	now := m.wall().UnixMicro()
	var rest standing // it is there from the start, and so are the names
	for i := range all {
		if i >= namedGroups {
			rest.add(&all[i].standing)
			continue
		}
		m.each(to, &all[i].standing, now, all[i].log, all[i].Name)
	}
	m.each(to, &rest, now, "", "")
}

func (m *GroupMetrics) each(to chan<- prometheus.Metric, s *standing, now int64, labels ...string) {
	for i := range m.kinds {
		k := &m.kinds[i]
		to <- prometheus.MustNewConstMetric(k.desc, k.typ, k.of(s, now), labels...)
	}
}

// ask asks all shards that have groups, and returns what is known of them.
func (m *GroupMetrics) ask() map[*host.Shard][]standing {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	var (
		wg   sync.WaitGroup
		open = map[*host.Shard]bool{}
		slot = make(chan struct{}, scrapeAtOnce)
	)
	for _, s := range m.shards() {
		if s.View().Groups == 0 {
			continue
		}
		open[s] = true
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			if list, err := standings(ctx, s); err == nil {
				m.mu.Lock()
				m.heard[s] = list
				m.mu.Unlock()
			}
		})
	}
	wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[*host.Shard][]standing{}
	for s, list := range m.heard {
		if open[s] {
			out[s] = list
		} else {
			delete(m.heard, s)
		}
	}
	return out
}

// standings are how the groups of one shard stand.
func standings(ctx context.Context, s *host.Shard) ([]standing, error) {
	var infos []group.Info
	err := inspect(ctx, s, func(v *group.View) { infos = v.Infos("", group.MaxGroups, false) })
	if err != nil {
		return nil, err
	}
	out := make([]standing, len(infos))
	for i := range infos {
		out[i].Info = infos[i]
		if ctx.Err() == nil {
			out[i].oldest = Oldest(s, &infos[i])
		}
	}
	return out, nil
}

// named is a group over all its shards.
type named struct {
	log string
	standing
}

// sum adds up the shards of each group, in the order of their names.
func (m *GroupMetrics) sum(shards map[*host.Shard][]standing) []named {
	type key struct{ log, group string }
	groups := map[key]*standing{}
	table := m.table.Load()
	for s, list := range shards {
		l, ok := table.ByID(router.LogID(s.Ref.Log))
		if !ok {
			continue
		}
		for i := range list {
			k := key{l.Name, list[i].Name}
			if groups[k] == nil {
				groups[k] = &standing{Info: group.Info{Name: list[i].Name}}
			}
			groups[k].add(&list[i])
		}
	}
	out := make([]named, 0, len(groups))
	for k, s := range groups {
		out = append(out, named{k.log, *s})
	}
	slices.SortFunc(out, func(a, b named) int { return cmp.Or(cmp.Compare(a.log, b.log), cmp.Compare(a.Name, b.Name)) })
	return out
}

// add adds another shard, or another group.
func (s *standing) add(o *standing) {
	s.Ready += o.Ready
	s.InFlight += o.InFlight
	s.Delayed += o.Delayed
	s.Dead += o.Dead
	s.oldest = earlier(s.oldest, o.oldest)
	s.StalledAt = earlier(s.StalledAt, o.StalledAt)
	t, u := &s.Totals, &o.Totals
	t.Acked += u.Acked
	t.Attempts += u.Attempts
	t.Dead += u.Dead
	t.Redriven += u.Redriven
	t.Discarded += u.Discarded
	t.Expired += u.Expired
	t.Cancelled += u.Cancelled
	t.Lost += u.Lost
}

// earlier is the earlier of two times, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
