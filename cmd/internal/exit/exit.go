// SPDX-License-Identifier: Apache-2.0

// Package exit turns an error into what the caller of the command sees: an exit code and a report of
// what happened, what it means for the data and what to do. It computes from error codes and classes
// only and never looks at a message's text.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"margay.dev/wire/code"
)

// The exit codes, stable for scripts and documented in the command line's help.
const (
	Done        = 0 // it happened
	Unknown     = 1 // it may have happened, or margay itself is at fault
	Usage       = 2 // the command line, the environment or a context file is wrong; nothing was tried
	Unreachable = 3 // nobody answered within the timeout
	Refused     = 4 // answered, and certainly not done
	NotThere    = 5 // what was named does not exist
)

// Effect says what a command does to data, because the same error means different things to a reader
// (nothing is at stake) and to a writer (the write may have happened).
type Effect uint8

// What a command does.
const (
	Reads Effect = iota
	Writes
)

// Error is an error together with the parts of its report that only the place of the failure knows.
// Empty parts are filled from the code and class of Err.
type Error struct {
	Err  error
	Code int    // 0: from Err
	Data string // what it means for the data
	Do   string // what to do
	// Details go into a report that is an object, for a program to act on.
	Details any
}

func (f *Error) Error() string { return f.Err.Error() }
func (f *Error) Unwrap() error { return f.Err }

// Misuse is a fault of the command line, found before anything was tried.
func Misuse(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Code: Usage}
}

// NoAnswer marks an error of reaching somebody, as opposed to an answer that says no. An answer that
// came through (a refused token, say) keeps its own meaning.
func NoAnswer(err error, where string) error {
	if err == nil {
		return nil
	}
	if answered(err) {
		return err
	}
	return &Error{
		Err:  &unreachable{where, err},
		Code: Unreachable,
		Data: "nothing was sent",
		Do:   "check that it runs there (start one with `margay serve`), or name another with --context or --address",
	}
}

// unreachable says the innermost reason only: on its way up through retries and layers the error has
// gathered the same story several times.
type unreachable struct {
	where string
	err   error
}

func (u *unreachable) Error() string { return "cannot reach " + u.where + ": " + root(u.err) }
func (u *unreachable) Unwrap() error { return u.err }

func root(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if known, ok := errors.AsType[*code.Error](err); ok && known.Message != "" {
		return known.Message
	}
	return err.Error()
}

func answered(err error) bool {
	var known *code.Error
	if !errors.As(err, &known) {
		return false
	}
	switch known.Code {
	case code.Unavailable, code.Timeout, code.Cancelled, code.Closed, code.Internal, code.ShuttingDown:
		return false
	default:
		return true
	}
}

// Report is an error made ready for a person or a script.
type Report struct {
	Exit  int    `json:"exit"`
	Code  string `json:"code"`
	Class string `json:"class"`
	What  string `json:"error"`
	Data  string `json:"data,omitempty"`
	Do    string `json:"do,omitempty"`

	Details any `json:"details,omitempty"`
}

// Describe makes the report of err for a command with the given effect.
func Describe(err error, effect Effect) Report {
	r := Report{Exit: CodeOf(err, effect), What: what(err)}
	c, class := classify(err)
	r.Code, r.Class = c.Error(), class.String()
	if f, ok := errors.AsType[*Error](err); ok {
		r.Data, r.Do, r.Details = f.Data, f.Do, f.Details
	}
	if r.Exit == Usage {
		r.Code, r.Class = "usage", code.ClassFatal.String()
	}
	if r.Data == "" {
		r.Data = meaning(r.Exit, class, effect)
	}
	if r.Do == "" && r.Exit != Usage {
		r.Do = c.Remedy()
	}
	return r
}

// what is the error's text without the remedy that a coded error carries: a report has a place for it.
func what(err error) string {
	var known *code.Error
	if !errors.As(err, &known) || known.Message == "" {
		return err.Error()
	}
	return strings.Replace(err.Error(), known.Error(), known.Code.Error()+": "+known.Message, 1)
}

// CodeOf is the one place where an error becomes an exit code.
func CodeOf(err error, effect Effect) int {
	if err == nil {
		return Done
	}
	var f *Error
	if errors.As(err, &f) && f.Code != 0 {
		return f.Code
	}
	c, class := classify(err)
	switch c {
	case code.NotFound, code.Deleted:
		return NotThere
	case code.Unavailable:
		return Unreachable
	case code.Timeout:
		// Nothing is in doubt for a reader, nor for a writer whose request is known not to have been
		// taken: all that was learned is that no answer came in time.
		if effect == Reads || class == code.ClassRefused {
			return Unreachable
		}
	default: // the class says it all
	}
	if class == code.ClassRefused || class == code.ClassFatal {
		return Refused
	}
	return Unknown
}

// classify finds the code and class of any error, also of those that did not come over the wire.
func classify(err error) (code.Code, code.Class) {
	var known *code.Error
	var dial *net.OpError
	var timeout interface{ Timeout() bool }
	var bare code.Code
	var f *Error
	switch {
	case errors.As(err, &known):
		return known.Code, known.Class
	case errors.As(err, &bare):
		return bare, bare.Class()
	case errors.As(err, &f) && f.Code == Refused:
		return code.BadRequest, code.ClassFatal
	case errors.As(err, &f) && f.Code == NotThere, errors.Is(err, fs.ErrNotExist):
		return code.NotFound, code.ClassFatal
	case errors.Is(err, fs.ErrPermission):
		return code.PermissionDenied, code.ClassFatal
	case errors.As(err, &dial) && dial.Op == "dial":
		return code.Unavailable, code.ClassRefused // never connected, so certainly not applied
	case errors.Is(err, context.Canceled):
		return code.Cancelled, code.ClassUnknown
	case errors.As(err, &timeout) && timeout.Timeout():
		return code.Timeout, code.ClassUnknown
	}
	return code.Internal, code.ClassUnknown
}

func meaning(exit int, class code.Class, effect Effect) string {
	switch {
	case exit == Usage:
		return "nothing was tried"
	case effect == Reads:
		return "nothing was changed"
	case class == code.ClassUnknown:
		return "unknown: it may or may not have been done; look before doing it again"
	}
	return "certainly not done; nothing was changed"
}
