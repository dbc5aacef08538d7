// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"margay.dev/bench/internal/table"
)

// What the plot is drawn in: met, not met, and the target's mark.
var (
	green = color.RGBA{R: 0x1b, G: 0x7f, B: 0x4b, A: 0xff}
	red   = color.RGBA{R: 0xb3, G: 0x26, B: 0x1e, A: 0xff}
	gray  = color.RGBA{R: 0x77, G: 0x77, B: 0x77, A: 0xff}
)

// lane is one claim in the plot: how far it is above its target, which is the line at 1.
type lane struct {
	name           string
	mid, low, high float64
	met            bool
}

func (r *Report) lanes() []lane {
	var all []lane
	for _, s := range r.Rows {
		for _, o := range s.Outcomes {
			if o.Ratio.N == 0 || o.Ratio.Median <= 0 || o.Ratio.Min <= 0 {
				continue
			}
			l := lane{name: s.ID + ": " + o.Claim.What, met: o.Verdict == table.Met}
			l.mid, l.low, l.high = o.Ratio.Median, o.Ratio.Min, o.Ratio.Max
			want := o.Claim.AtLeast
			if o.Claim.AtMost > 0 { // less is better: turned over, so that right is good everywhere
				l.mid, l.low, l.high = 1/l.mid, 1/l.high, 1/l.low
				want = 1 / o.Claim.AtMost
			}
			l.mid, l.low, l.high = l.mid/want, l.low/want, l.high/want
			all = append(all, l)
		}
	}
	return all
}

// Plot draws every claim as a point with its spread, in multiples of its target.
func (r *Report) Plot(w io.Writer) error {
	p, rows, err := r.draw()
	if err != nil {
		return err
	}
	c := vgsvg.New(11*vg.Inch, vg.Length(rows)*0.24*vg.Inch+1.1*vg.Inch)
	p.Draw(draw.New(c))
	_, err = c.WriteTo(w)
	return err
}

// draw makes the plot, of so many rows.
func (r *Report) draw() (p *plot.Plot, rows int, err error) {
	lanes := r.lanes()
	p = plot.New()
	p.Title.Text = "Measured, as a multiple of the target (green: met, also by the bare prototype's share)"
	p.X.Label.Text = "times the target; the line is the target; whiskers are the rounds"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, multiples{}
	p.X.Min, p.X.Max = 0.5, 2
	grid := plotter.NewGrid()
	grid.Horizontal.Color = color.Transparent
	p.Add(grid)
	names := make([]string, len(lanes))
	for i, l := range lanes {
		y := float64(len(lanes) - 1 - i)
		names[len(lanes)-1-i] = l.name
		if err := l.draw(p, y); err != nil {
			return nil, 0, fmt.Errorf("plot %s: %w", l.name, err)
		}
		p.X.Min, p.X.Max = min(p.X.Min, l.low*0.9), max(p.X.Max, l.high*1.1)
	}
	if len(lanes) == 0 {
		names = []string{"nothing was measured"}
	}
	target, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.7}, {X: 1, Y: float64(len(names)) - 0.3}})
	if err != nil {
		return nil, 0, fmt.Errorf("plot: %w", err)
	}
	target.Color, target.Width = gray, vg.Points(1.5)
	p.Add(target)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.7, float64(len(names))-0.3
	return p, len(names), nil
}

func (l lane) draw(p *plot.Plot, y float64) error {
	c := red
	if l.met {
		c = green
	}
	spread, err := plotter.NewLine(plotter.XYs{{X: l.low, Y: y}, {X: l.high, Y: y}})
	if err != nil {
		return err
	}
	spread.Color, spread.Width = c, vg.Points(2)
	dot, err := plotter.NewScatter(plotter.XYs{{X: l.mid, Y: y}})
	if err != nil {
		return err
	}
	dot.Color, dot.Radius, dot.Shape = c, vg.Points(4), draw.CircleGlyph{}
	p.Add(spread, dot)
	return nil
}

// multiples marks powers of two: the library's own marks of a logarithmic axis are powers of ten, of which there may be none.
type multiples struct{}

func (multiples) Ticks(low, high float64) []plot.Tick {
	var t []plot.Tick
	for e := math.Floor(math.Log2(low)); e <= math.Ceil(math.Log2(high)); e++ {
		if v := math.Exp2(e); v >= low && v <= high {
			t = append(t, plot.Tick{Value: v, Label: fmt.Sprintf("%gx", v)})
		}
	}
	return t
}
