// SPDX-License-Identifier: Apache-2.0

// Package output writes what commands print, in the three formats that every command offers; it owns
// standard output and standard error and refuses to send decoration where nobody reads it.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"

	"margay.dev/cmd/internal/exit"
)

// Format is how results are written.
type Format string

// The formats: text for people, JSON for programs (one object a line), raw for pipes (the bare value).
const (
	Text Format = "text"
	JSON Format = "json"
	Raw  Format = "raw"
)

// String, Set and Type make a Format a flag.
func (f *Format) String() string { return string(*f) }

// Set refuses any other format.
func (f *Format) Set(s string) error {
	switch Format(s) {
	case Text, JSON, Raw:
		*f = Format(s)
		return nil
	}
	return fmt.Errorf("format %q: want text, json or raw", s)
}

// Type names the flag's value in help.
func (f *Format) Type() string { return "text|json|raw" }

// Streams are the process's three files and what is known about them.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal say where a person sits.
	InTerminal, OutTerminal, ErrTerminal bool
	// Color is false when the user asked for none; it still needs a terminal.
	Color bool
}

// Printer writes results to standard output and everything else to standard error.
type Printer struct {
	format  Format
	streams Streams
	out     *Buffered

	mu   sync.Mutex // standard error: notes come from several goroutines
	live bool       // a progress line is on the screen
}

// NewPrinter takes over the output streams until Close.
func NewPrinter(format Format, s Streams) *Printer {
	return &Printer{format: format, streams: s, out: NewBuffered(s.Out)}
}

// Format returns the format of results.
func (p *Printer) Format() Format { return p.format }

// Close writes out what is buffered. Its error is the only sign that standard output is gone.
func (p *Printer) Close() error { return p.out.Close() }

// Flush writes out what is buffered.
func (p *Printer) Flush() error { return p.out.Flush() }

// JSON writes v as one line.
func (p *Printer) JSON(v any) error {
	return p.out.With(func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // a value with < or & must stay readable and greppable
		return enc.Encode(v)
	})
}

// Raw writes a value and a newline.
func (p *Printer) Raw(value []byte) error {
	return p.out.With(func(w io.Writer) error {
		if _, err := w.Write(value); err != nil {
			return err
		}
		_, err := w.Write([]byte{'\n'})
		return err
	})
}

// Line writes one formatted line.
func (p *Printer) Line(format string, args ...any) error {
	return p.out.With(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	})
}

// Table writes aligned columns. The heading is for a person: a pipe gets the rows alone.
func (p *Printer) Table(heading []string, rows [][]string) error {
	return p.out.With(func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if p.streams.OutTerminal && heading != nil {
			writeRow(tw, heading)
		}
		for _, row := range rows {
			writeRow(tw, row)
		}
		return tw.Flush()
	})
}

func writeRow(w io.Writer, cells []string) {
	for i, cell := range cells {
		if i > 0 {
			_, _ = io.WriteString(w, "\t") // a tabwriter fails only in Flush
		}
		_, _ = io.WriteString(w, cell)
	}
	_, _ = io.WriteString(w, "\n")
}

// Note tells a person something that is no result; it is silent when standard error is not a terminal.
func (p *Printer) Note(format string, args ...any) {
	if p.streams.ErrTerminal {
		p.say(format, args...)
	}
}

// Warn tells standard error something that matters also in a log file, such as a gap in what was read.
func (p *Printer) Warn(format string, args ...any) { p.say(format, args...) }

func (p *Printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eraseProgress()
	_, _ = fmt.Fprintf(p.streams.Err, format+"\n", args...) // nowhere left to report a lost standard error
}

// Fail reports an error on standard error, as an object when the results are objects.
func (p *Printer) Fail(r exit.Report) {
	if p.format == JSON {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.eraseProgress()
		enc := json.NewEncoder(p.streams.Err)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(r) // as in say
		return
	}
	p.say("%s %s", p.paintErr(red, "error:"), r.What)
	if r.Data != "" {
		p.say("%s %s", p.paintErr(dim, " data:"), r.Data)
	}
	if r.Do != "" {
		p.say("%s %s", p.paintErr(dim, "   do:"), r.Do)
	}
}
