// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"net/url"
	"time"

	"margay.dev/cmd/internal/output"
)

// Result is what a demo found, as its JSON output has it.
type Result struct {
	Acknowledged int `json:"acknowledged"`
	BeforeCrash  int `json:"acknowledged_before_crash"`
	Resent       int `json:"resent"`     // on their way without an answer when the node died
	Recognized   int `json:"recognized"` // of those, stored already and not stored again
	Found        int `json:"found"`
	Missing      int `json:"missing"`
	Different    int `json:"different"`
	Duplicates   int `json:"duplicates"`
	Extra        int `json:"extra"` // there and never acknowledged
	Tailed       int `json:"tailed"`
	Disorder     int `json:"tailed_out_of_order"`

	RecoverySeconds float64 `json:"recovery_seconds"` // from the kill to the next acknowledgement
	Seconds         float64 `json:"seconds"`
	Directory       string  `json:"directory,omitempty"` // of a node that stays
	Address         string  `json:"address,omitempty"`
	Context         string  `json:"context,omitempty"`
}

func (r *Result) take(f finding) {
	r.Found, r.Missing, r.Different, r.Duplicates, r.Extra = f.found, f.missing, f.different, f.duplicates, f.extra
}

func (r *Result) takeCrash(c *crash, acked, recognized int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Acknowledged, r.Recognized = acked, recognized
	r.BeforeCrash, r.Resent = c.acked, c.inFlight
	r.RecoverySeconds = c.resumed.Sub(c.killed).Round(time.Millisecond).Seconds()
}

// sound says that the promise was kept: what was acknowledged is there, each once, and nothing else.
func (r *Result) sound() bool {
	return r.Acknowledged > 0 && r.Found == r.Acknowledged && r.Tailed == r.Acknowledged &&
		r.Missing+r.Different+r.Duplicates+r.Extra+r.Disorder == 0
}

func (d *demo) printResult() error {
	r := &d.result
	if d.Stay {
		r.Directory, r.Address, r.Context = d.place.Dir, d.node.Address, d.place.Context()
	}
	switch d.Printer.Format() {
	case output.JSON:
		return d.Printer.JSON(r)
	case output.Raw:
		return d.Printer.Line("%d", r.Found)
	case output.Text: // for a person, below
	}
	p := d.Printer
	verdict := p.Good("Nothing that was acknowledged was lost, and nothing is there twice.")
	if !r.sound() {
		verdict = p.Bad("This is not what was promised.")
	}
	return p.Line(`
  acknowledged  %6d   %d before the crash, %d after it
  sent again    %6d   had no answer when the node died; %d of them it had stored already, and recognized
  found         %6d   each at the offset it was acknowledged with, byte for byte
  missing       %6d
  changed       %6d
  duplicates    %6d
  tailed live   %6d   through the crash; %d out of order
  recovery      %5.2fs   from kill -9 to the next acknowledgement
  total         %5.2fs

%s`,
		r.Acknowledged, r.BeforeCrash, r.Acknowledged-r.BeforeCrash,
		r.Resent, r.Recognized, r.Found, r.Missing, r.Different, r.Duplicates+r.Extra,
		r.Tailed, r.Disorder, r.RecoverySeconds, r.Seconds, verdict)
}

// hostPort is where a base URL leads.
func hostPort(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return fmt.Sprint(base) // the node refuses it with a better message
	}
	return u.Host
}
