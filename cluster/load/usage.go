// SPDX-License-Identifier: Apache-2.0

package load

// usage is what a process has taken so far.
type usage struct {
	cpu float64 // seconds, in user and kernel mode
	rss int64   // bytes, now
}

// meter follows the two processes while a phase lasts.
type meter struct {
	pid           int
	server        bool // it can be read
	client0, srv0 usage
	highest       int64
}

func newMeter(pid int) *meter {
	m := &meter{pid: pid, client0: ownUsage()}
	if pid > 0 {
		m.srv0, m.server = processUsage(pid)
		m.highest = m.srv0.rss
	}
	return m
}

// look is called now and then: memory is the highest that was seen.
func (m *meter) look() {
	if !m.server {
		return
	}
	if u, ok := processUsage(m.pid); ok {
		m.highest = max(m.highest, u.rss)
	}
}

// stop fills in what was taken since the meter was made.
func (m *meter) stop(r *Result) {
	per := func(seconds float64) float64 {
		if r.Messages == 0 {
			return 0
		}
		return seconds * 1e6 / float64(r.Messages)
	}
	r.ClientCPU = ownUsage().cpu - m.client0.cpu
	r.ClientCPUPerMessage = per(r.ClientCPU)
	if !m.server {
		return
	}
	u, ok := processUsage(m.pid)
	if !ok {
		return // it has ended: what it took nobody knows any more
	}
	cpu := u.cpu - m.srv0.cpu
	r.Server = &Server{PID: m.pid, CPU: cpu, CPUPerMessage: per(cpu), RSS: max(m.highest, u.rss)}
}

// OwnCPU is the processor time, in seconds, that this process has taken.
func OwnCPU() float64 { return ownUsage().cpu }
