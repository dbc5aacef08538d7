// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/wire/code"
)

// Config says how one line is sent and what becomes of its answer.
type Config[A any] struct {
	// Send begins to publish a line, which it may keep, and returns a function that waits for the
	// answer. It may block for room. An error says that the line was not sent at all.
	Send func(ctx context.Context, line []byte) (wait func(context.Context) (A, error), err error)
	// Acked is called for each line that is in, in the order of the lines. An error ends the run.
	Acked func(line uint64, ack A) error
	// MaxLine bounds one line's bytes, Window the lines without an answer.
	MaxLine, Window int
	// Grace is how long answers are waited for once the run is cancelled.
	Grace time.Duration
}

// Fates says what became of the lines that were read. Nothing is known, or needs to be, of later ones.
type Fates struct {
	In      Ranges `json:"in,omitempty"`
	Out     Ranges `json:"out,omitempty"`
	Unknown Ranges `json:"unknown,omitempty"`
}

// Error says why a run stopped, and is followed by what is certain.
type Error struct {
	Line  uint64 // the first line that failed; 0 when none did (a cancelled run, a lost output)
	Err   error
	Fates Fates
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Meaning tells the fates in one sentence.
func (f Fates) Meaning() string {
	var parts []string
	last := uint64(0)
	for _, p := range []struct {
		ranges Ranges
		is     string
	}{{f.In, "certainly in"}, {f.Out, "certainly not in"}, {f.Unknown, "unknown (may be in)"}} {
		if len(p.ranges) > 0 {
			last = max(last, p.ranges[len(p.ranges)-1].Last)
			noun := "lines"
			if p.ranges.Count() == 1 {
				noun = "line"
			}
			parts = append(parts, fmt.Sprintf("%s %v: %s", noun, p.ranges, p.is))
		}
	}
	if last == 0 {
		return "no line was sent"
	}
	return strings.Join(append(parts, fmt.Sprintf("no line after %d was sent", last)), "; ")
}

type input struct {
	text []byte
	err  error
}

type pending[A any] struct {
	line uint64
	wait func(context.Context) (A, error)
	err  error // instead of wait: the line was not sent
}

type run[A any] struct {
	cfg    Config[A]
	sent   chan pending[A]
	failed chan struct{} // closed at the first failure: nothing more is sent
	acked  *atomic.Uint64
	first  *Error
	fates  Fates
}

// Publish sends every line of in and returns when each has its answer. It stops sending at the first
// failure or when ctx ends, and then returns an *Error. The count of lines that are in goes up in
// acked while it runs.
//
// Its reader may stay behind in a read that never ends (a terminal, a quiet pipe) after ctx has ended:
// a read of a file cannot be taken back, so Publish does not wait for it.
func Publish[A any](ctx context.Context, in io.Reader, acked *atomic.Uint64, cfg Config[A]) (Fates, error) {
	r := &run[A]{
		cfg:    cfg,
		acked:  acked,
		sent:   make(chan pending[A], cfg.Window),
		failed: make(chan struct{}),
	}
	// Answers are waited for a little longer than ctx lives: "unknown" is the one thing a user cannot
	// act upon, and most answers are a few milliseconds away.
	patient, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(cfg.Grace, giveUp)
		context.AfterFunc(patient, func() { timer.Stop() })
	})()

	quit := make(chan struct{})
	defer close(quit)
	var collector sync.WaitGroup
	collector.Go(func() { r.collect(patient) })
	err := r.send(ctx, patient, read(in, cfg.MaxLine, quit))
	close(r.sent)
	collector.Wait()
	if r.first == nil && err != nil {
		r.first = &Error{Err: err}
	}
	if r.first != nil {
		r.first.Fates = r.fates
		return r.fates, r.first
	}
	return r.fates, nil
}

func read(in io.Reader, most int, quit <-chan struct{}) <-chan input {
	lines := make(chan input, 64)
	go func() {
		defer close(lines)
		s := newSplitter(in, most)
		for {
			text, err := s.next()
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case lines <- input{text, err}:
			case <-quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// send returns the error of a run that stopped for no line's sake.
func (r *run[A]) send(ctx, patient context.Context, lines <-chan input) error {
	for n := uint64(1); ; n++ {
		var line input
		var more bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.failed:
			return nil
		case line, more = <-lines:
		}
		if !more {
			return nil
		}
		p := pending[A]{line: n, err: line.err}
		if p.err == nil {
			p.wait, p.err = r.cfg.Send(patient, line.text)
		}
		r.sent <- p // the collector takes all, so this waits only while the window is full
		if p.err != nil {
			return nil //nolint:nilerr // it went with its line to the collector, which tells it
		}
	}
}

func (r *run[A]) collect(ctx context.Context) {
	for p := range r.sent {
		var ack A
		err := p.err
		if err == nil {
			ack, err = p.wait(ctx)
		}
		if err != nil {
			r.fail(p, err)
			continue
		}
		r.fates.In.add(p.line)
		r.acked.Add(1)
		if err := r.cfg.Acked(p.line, ack); err != nil {
			r.stop(&Error{Err: err})
		}
	}
}

func (r *run[A]) fail(p pending[A], err error) {
	// A line that never left is out, whatever its error's class says about requests that did.
	if p.wait != nil && code.From(err).Class == code.ClassUnknown {
		r.fates.Unknown.add(p.line)
	} else {
		r.fates.Out.add(p.line)
	}
	r.stop(&Error{Line: p.line, Err: err})
}

func (r *run[A]) stop(e *Error) {
	if r.first == nil {
		r.first = e
		close(r.failed)
	}
}
