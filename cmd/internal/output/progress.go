// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"sync"
	"time"
)

const (
	progressAfter = time.Second // short work shows nothing
	progressEvery = 250 * time.Millisecond
)

// Progress shows state on one line of standard error, redrawn while work goes on. It does nothing when
// standard error is no terminal, or when results for programs scroll over the same screen. Call the returned function when the work has ended; it waits for the
// last redraw.
func (p *Printer) Progress(state func() string) (stop func()) {
	if !p.streams.ErrTerminal || p.streams.OutTerminal && p.format != Text {
		return func() {}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		wait := time.NewTimer(progressAfter)
		defer wait.Stop()
		for {
			select {
			case <-quit:
				p.mu.Lock()
				p.eraseProgress()
				p.mu.Unlock()
				return
			case <-wait.C:
				line := state()
				p.mu.Lock()
				p.eraseProgress()
				_, _ = fmt.Fprintf(p.streams.Err, "\r%s", line) // as in say
				p.live = true
				p.mu.Unlock()
				wait.Reset(progressEvery)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		done.Wait()
	})
}

// eraseProgress needs p.mu.
func (p *Printer) eraseProgress() {
	if p.live {
		_, _ = fmt.Fprint(p.streams.Err, "\r\x1b[K")
		p.live = false
	}
}
