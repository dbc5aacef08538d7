// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
)

// The most that the last minute of a life may have of what its third one had, and what is no growth whatever the factor:
// a connection that comes while one sample is taken, a heap that was just collected when the other was.
const (
	growth           = 1.1
	slackBytes       = 8 << 20
	slackGoroutines  = 30
	slackDescriptors = 10
	settled          = 2    // rows of a life before the one that is compared with
	paced            = 0.95 // of what is to be published in a row: below, more waits in queues than at the usual pace
)

// row is one minute, by the medians of its samples.
type row struct {
	Minute      int     `json:"minute"`
	Life        int     `json:"life"`
	Whole       bool    `json:"whole"` // undisturbed, neither the first of a life nor cut short
	Paced       bool    `json:"paced"` // as much was published as was asked for: the machine had the time
	MB          float64 `json:"published_mb"`
	Acked       uint64  `json:"acked"`
	Read        uint64  `json:"read"`
	Lost        uint64  `json:"stated_lost"`
	RSS         float64 `json:"rss_bytes"`
	Heap        float64 `json:"heap_bytes"`
	Goroutines  float64 `json:"goroutines"`
	Descriptors float64 `json:"descriptors"`
	Connections float64 `json:"connections"`
	InFlight    float64 `json:"inflight_bytes"`
	Queued      float64 `json:"queued_bytes"`
	Disk        int64   `json:"disk_bytes"`
	Bulk        int64   `json:"bulk_bytes"`
	Restarts    int     `json:"restarts"`
	Held        int     `json:"checker_holds"`
	Violations  uint64  `json:"violations"`
}

// judged is what grew within a life.
type judged struct {
	Life  int     `json:"life"`
	What  string  `json:"what"`
	Third float64 `json:"third_minute"`
	Last  float64 `json:"last_minute"`
	Ratio float64 `json:"ratio"`
	OK    bool    `json:"ok"`
}

// report is what a run has to say.
type report struct {
	Config     *config  `json:"config"`
	Rows       []row    `json:"rows"`
	Growth     []judged `json:"growth"`
	Summary    string   `json:"summary"`
	Problems   []string `json:"problems"`
	Violations []string `json:"violations"`
	OK         bool     `json:"ok"`

	say      func(format string, args ...any)
	lives    int
	restarts int
	samples  []sample // of the row that is being filled
	before   sample   // the last one of the row before
	first    bool     // the row is the first of its life
}

// newLife ends the row that is being filled: its samples are another process's.
func (p *report) newLife() {
	p.close()
	p.lives++
	p.first = true
}

// add takes a sample, and ends a row when its time is over.
func (p *report) add(s sample) {
	if len(p.samples) > 0 && s.at/p.Config.row != p.samples[0].at/p.Config.row {
		p.close()
	}
	p.samples = append(p.samples, s)
}

// close ends the row that is being filled.
func (p *report) close() {
	if len(p.samples) == 0 {
		return
	}
	last := p.samples[len(p.samples)-1]
	median := func(of func(sample) float64) float64 {
		var all []float64
		for _, s := range p.samples {
			all = append(all, of(s))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	r := row{
		Minute: len(p.Rows) + 1, Life: p.lives, Whole: p.restarts == 0 && !p.first && last.at-p.samples[0].at > p.Config.row*3/4,
		MB: float64(last.published-p.before.published) / 1e6, Acked: last.acked - p.before.acked, Read: last.read - p.before.read,
		Lost:        last.lost - p.before.lost,
		RSS:         median(func(s sample) float64 { return s.rss }),
		Heap:        median(func(s sample) float64 { return s.heap }),
		Goroutines:  median(func(s sample) float64 { return s.goroutines }),
		Descriptors: median(func(s sample) float64 { return s.descriptors }),
		Connections: median(func(s sample) float64 { return s.connections }),
		InFlight:    median(func(s sample) float64 { return s.inflight }),
		Queued:      median(func(s sample) float64 { return s.queued }),
		Disk:        int64(median(func(s sample) float64 { return float64(s.disk) })),
		Bulk:        int64(median(func(s sample) float64 { return float64(s.bulk) })),
		Restarts:    p.restarts, Held: last.open, Violations: last.violations,
	}
	r.Paced = r.MB >= paced*float64(p.Config.MBPerMinute)*p.Config.row.Minutes()
	if len(p.Rows) == 0 {
		p.say("%6s %4s %9s %9s %9s %9s %8s %8s %6s %5s %8s %8s %8s %5s\n", "minute", "life", "published", "acked", "read", "lost",
			"rss", "heap", "gorout", "fds", "disk", "restarts", "held", "wrong")
	}
	p.say("%6d %4d %7.0fMB %9d %9d %9d %6.1fMi %6.1fMi %6.0f %5.0f %6.0fMi %8d %8d %5d\n", r.Minute, r.Life, r.MB, r.Acked, r.Read, r.Lost,
		r.RSS/(1<<20), r.Heap/(1<<20), r.Goroutines, r.Descriptors, float64(r.Disk)/(1<<20), r.Restarts, r.Held, r.Violations)
	p.Rows = append(p.Rows, r)
	p.before, p.samples, p.restarts, p.first = last, nil, 0, false
}

// judge compares within each life, and says whether all is well.
func (p *report) judge() {
	for life := 1; life <= p.lives; life++ {
		third, last := -1, -1
		seen := 0
		for i, r := range p.Rows {
			if r.Life != life {
				continue
			}
			if seen++; seen <= settled || !r.Whole || !r.Paced {
				continue
			}
			if third < 0 {
				third = i
			}
			last = i
		}
		if third < 0 || last-third < 1 {
			continue
		}
		a, b := p.Rows[third], p.Rows[last]
		p.compare(life, "rss", a.RSS, b.RSS, slackBytes)
		p.compare(life, "goroutines", a.Goroutines, b.Goroutines, slackGoroutines)
		p.compare(life, "descriptors", a.Descriptors, b.Descriptors, slackDescriptors)
	}
	// Retention looks now and then, and takes whole segments: a shard may hold the segment that is written, and one that
	// was closed since it looked, beyond what it keeps.
	const mostBulk = bulkShards * (bulkKept + 3*bulkSegment)
	for _, r := range p.Rows {
		if r.Bulk > mostBulk {
			p.Problems = append(p.Problems, fmt.Sprintf("minute %d: stream %s takes %d bytes, and is to keep %d", r.Minute, bulkStream, r.Bulk, bulkShards*bulkKept))
		}
	}
	p.OK = len(p.Problems) == 0 && len(p.Violations) == 0 && !slices.ContainsFunc(p.Growth, func(j judged) bool { return !j.OK })
}

func (p *report) compare(life int, what string, third, last, slack float64) {
	j := judged{Life: life, What: what, Third: third, Last: last}
	if third > 0 {
		j.Ratio = last / third
	}
	j.OK = last <= third*growth || last-third <= slack
	p.Growth = append(p.Growth, j)
}

// print writes what the table does not show.
func (p *report) print() {
	for _, j := range p.Growth {
		verdict := "ok"
		if !j.OK {
			verdict = "GROWS"
		}
		p.say("life %d  %-11s third minute %12.0f  last minute %12.0f  ratio %.3f  %s\n", j.Life, j.What, j.Third, j.Last, j.Ratio, verdict)
	}
	if len(p.Growth) == 0 {
		p.say("growth is not judged: no life has two minutes from its third on that were undisturbed and kept the pace\n")
	}
	p.say("%s\n", p.Summary)
	for _, problem := range p.Problems {
		p.say("problem: %s\n", problem)
	}
	for _, v := range p.Violations {
		p.say("violation: %s\n", v)
	}
	if p.OK {
		p.say("sound\n")
	} else {
		p.say("NOT SOUND\n")
	}
}
