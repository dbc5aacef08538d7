// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strconv"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Entry is the value of a key, and which one it is. Value and header values must not be changed: others may have the same
// bytes.
type Entry struct {
	Key   string
	Value []byte
	// Headers that were stored beside the value.
	Headers []Header
	// Version is what IfVersion takes.
	Version uint64
	// Generation of the shard's leader that stored it.
	Generation uint64
	AppendTime time.Time
	// Expires is when its time to live ends; zero for never.
	Expires time.Time
}

// Int64 is the number that the value is, such as Add keeps.
func (e *Entry) Int64() (int64, error) {
	n, err := strconv.ParseInt(string(e.Value), 10, 64)
	if err != nil {
		return 0, code.New(code.NotANumber, "the value of key %.200q is no 64-bit decimal number", e.Key)
	}
	return n, nil
}

// fill takes what came over the wire. The value is the caller's, also where it aliases the frame.
func (e *Entry) fill(key string, w *wire.Entry) *Error {
	*e = Entry{
		Key: key, Value: w.Value, Version: w.Version(), Generation: w.Generation,
	}
	if w.AppendTime != 0 { // a list of keys only does not say it
		e.AppendTime = time.UnixMicro(w.AppendTime)
	}
	if w.Kind == wire.EntryValue && e.Value == nil {
		e.Value = []byte{}
	}
	if w.Expires != 0 {
		e.Expires = time.UnixMicro(w.Expires)
	}
	if len(w.Headers) == 0 {
		return nil
	}
	headers, err := batch.ParseHeaders(w.Headers, nil)
	if err != nil {
		return code.New(code.Protocol, "headers of key %.200q: %w", key, err)
	}
	e.Headers = headers
	return nil
}
