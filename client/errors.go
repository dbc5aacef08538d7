// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"

	"margay.dev/wire/code"
)

// Error is what every error of this package is or wraps: a stable code, a class, and what to do about it.
type Error = code.Error

// Class says what may be concluded about a request that failed.
type Class = code.Class

// The classes.
const (
	Refused = code.ClassRefused
	Fatal   = code.ClassFatal
	Unknown = code.ClassUnknown
)

// The codes a caller is most likely to ask for, with errors.Is. All of them are in margay.dev/wire/code.
const (
	ErrBadRequest       = code.BadRequest
	ErrUnsupported      = code.Unsupported
	ErrUnauthenticated  = code.Unauthenticated
	ErrPermissionDenied = code.PermissionDenied
	ErrNotFound         = code.NotFound
	ErrAlreadyExists    = code.AlreadyExists
	ErrConflict         = code.Conflict
	ErrTooLarge         = code.TooLarge
	ErrTooMany          = code.TooMany
	ErrOutOfOrder       = code.OutOfOrder
	ErrCorruptBatch     = code.CorruptBatch
	ErrUnavailable      = code.Unavailable
	ErrOverloaded       = code.Overloaded
	ErrStorageFull      = code.StorageFull
	ErrBufferFull       = code.BufferFull
	ErrOutOfRange       = code.OutOfRange
	ErrCut              = code.Cut
	ErrSlowConsumer     = code.SlowConsumer
	ErrOutcomeUnknown   = code.OutcomeUnknown
	ErrTimeout          = code.Timeout
	ErrCancelled        = code.Cancelled
	ErrClosed           = code.Closed
	ErrDeleted          = code.Deleted
	ErrTakenOver        = code.TakenOver
	ErrNotANumber       = code.NotANumber
	ErrNoLongerOwner    = code.NoLongerOwner
)

// AsError returns the *Error that err is or wraps, nil for none.
func AsError(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// ended turns an ended context into an error of the class that fits what the caller knows.
func ended(ctx context.Context, class Class, format string, args ...any) *Error {
	c := code.Cancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c = code.Timeout
	}
	return code.New(c, format+": %w", append(args, ctx.Err())...).WithClass(class)
}

// unavailable is for what a lane or connection failed with: the operation may be tried again. The text of a nested
// error comes without its remedy, which would be about something else.
func unavailable(op string, err error) *Error {
	return code.New(code.Unavailable, "%s: %s", op, code.From(err).Message)
}
