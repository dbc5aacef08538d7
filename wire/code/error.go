// SPDX-License-Identifier: Apache-2.0

package code

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Error is an error at a boundary: what a frame or a REST answer carries.
type Error struct {
	Code  Code
	Class Class
	// Message says what happened, for a person; programs look at Code, Class and Details.
	Message string
	// RetryAfter is how long to wait before trying again; zero when the node does not know.
	RetryAfter time.Duration
	// Address and Generation say where the request belongs (NotLeader); empty when not known.
	Address    string
	Generation uint64
	Details    Details

	cause error
}

// New makes an error of code c with its default class. The format may wrap a cause with %w; the cause
// stays in this process, only its text travels.
func New(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Class: c.Class(), Message: err.Error(), cause: errors.Unwrap(err)}
}

// Error returns "name: message (remedy)".
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error() + " (" + e.Code.Remedy() + ")"
	}
	return e.Code.Error() + ": " + e.Message + " (" + e.Code.Remedy() + ")"
}

// Is makes errors.Is(err, code.NotFound) true for any error of that code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Unwrap returns the local cause, nil for an error that came over the wire.
func (e *Error) Unwrap() error { return e.cause }

// With adds one detail and returns e.
func (e *Error) With(d Detail, v uint64) *Error {
	e.Details.Put(d, v)
	return e
}

// Retry says how long to wait before trying again and returns e.
func (e *Error) Retry(after time.Duration) *Error {
	e.RetryAfter = after
	return e
}

// At says where the request belongs and returns e.
func (e *Error) At(address string, generation uint64) *Error {
	e.Address, e.Generation = address, generation
	return e
}

// WithClass gives e another class than its code's default and returns e: the same failure is refused when it
// is known that nothing was applied, and unknown when it is not.
func (e *Error) WithClass(c Class) *Error {
	e.Class = c
	return e
}

// From turns any error into an *Error for the wire: one that is or wraps an *Error stays what it is, a
// bare Code gets its default class, an ended context or deadline becomes Cancelled or Timeout, and
// everything else is Internal. From(nil) is a nil *Error: do not return it as an error.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	c := Internal
	if own, ok := errors.AsType[Code](err); ok {
		c = own
	} else if errors.Is(err, context.Canceled) {
		c = Cancelled
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		c = Timeout
	}
	return &Error{Code: c, Class: c.Class(), Message: err.Error(), cause: err}
}
