// SPDX-License-Identifier: Apache-2.0

package output

const (
	red   = "31"
	green = "32"
	bold  = "1"
	dim   = "2"
)

func paint(on bool, style, s string) string {
	if !on {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (p *Printer) paintErr(style, s string) string {
	return paint(p.streams.Color && p.streams.ErrTerminal, style, s)
}

func (p *Printer) paintOut(style, s string) string {
	return paint(p.streams.Color && p.streams.OutTerminal, style, s)
}

// Bold styles what to look at first. Like its siblings it does nothing where no terminal shows it.
func (p *Printer) Bold(s string) string { return p.paintOut(bold, s) }

// Dim styles what stands beside the point.
func (p *Printer) Dim(s string) string { return p.paintOut(dim, s) }

// Good styles a success.
func (p *Printer) Good(s string) string { return p.paintOut(green, s) }

// Bad styles a failure.
func (p *Printer) Bad(s string) string { return p.paintOut(red, s) }
