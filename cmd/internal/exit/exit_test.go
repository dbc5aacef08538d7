// SPDX-License-Identifier: Apache-2.0

package exit_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"testing"

	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/code"
)

func TestCodeOf(t *testing.T) {
	dial := &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	tests := []struct {
		name         string
		err          error
		read, writes int
	}{
		{"nothing", nil, exit.Done, exit.Done},
		{"any other error", errors.New("x"), exit.Unknown, exit.Unknown},
		{"misuse", exit.Misuse("bad flag"), exit.Usage, exit.Usage},
		{"wrapped misuse", fmt.Errorf("pub: %w", exit.Misuse("x")), exit.Usage, exit.Usage},
		{"not found", code.New(code.NotFound, "no stream"), exit.NotThere, exit.NotThere},
		{"deleted in use", code.New(code.Deleted, "gone"), exit.NotThere, exit.NotThere},
		{"no file", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, exit.NotThere, exit.NotThere},
		{"no right to a file", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}, exit.Refused, exit.Refused},
		{"unavailable", code.New(code.Unavailable, "no leader"), exit.Unreachable, exit.Unreachable},
		{"dial", dial, exit.Unreachable, exit.Unreachable},
		{"timeout", code.New(code.Timeout, "slow"), exit.Unreachable, exit.Unknown},
		{"timeout before anything was sent", code.New(code.Timeout, "x").WithClass(code.ClassRefused), exit.Unreachable, exit.Unreachable},
		{"deadline", context.DeadlineExceeded, exit.Unreachable, exit.Unknown},
		{"cancelled", context.Canceled, exit.Unknown, exit.Unknown},
		{"outcome unknown", code.New(code.OutcomeUnknown, "died"), exit.Unknown, exit.Unknown},
		{"internal", code.New(code.Internal, "bug"), exit.Unknown, exit.Unknown},
		{"overloaded", code.New(code.Overloaded, "later"), exit.Refused, exit.Refused},
		{"not leader", code.New(code.NotLeader, "there"), exit.Refused, exit.Refused},
		{"denied", code.New(code.PermissionDenied, "no"), exit.Refused, exit.Refused},
		{"no credential", code.New(code.Unauthenticated, "who"), exit.Refused, exit.Refused},
		{"too large", code.New(code.TooLarge, "big"), exit.Refused, exit.Refused},
		{"exists", code.New(code.AlreadyExists, "yes"), exit.Refused, exit.Refused},
		{"a class of its own wins over the code's", &code.Error{Code: code.BadRequest, Class: code.ClassUnknown}, exit.Unknown, exit.Unknown},
		{"no answer", exit.NoAnswer(context.DeadlineExceeded, "a"), exit.Unreachable, exit.Unreachable},
		{"no answer, typed", exit.NoAnswer(code.New(code.Timeout, "x"), "a"), exit.Unreachable, exit.Unreachable},
		{"an answer while connecting", exit.NoAnswer(code.New(code.Unauthenticated, "x"), "a"), exit.Refused, exit.Refused},
		{"reached", exit.NoAnswer(nil, "a"), exit.Done, exit.Done},
	}
	for _, test := range tests {
		if got := exit.CodeOf(test.err, exit.Reads); got != test.read {
			t.Errorf("%s, reading: %d, want %d", test.name, got, test.read)
		}
		if got := exit.CodeOf(test.err, exit.Writes); got != test.writes {
			t.Errorf("%s, writing: %d, want %d", test.name, got, test.writes)
		}
	}
}

// Every code must map to a documented exit code, and every report must carry all three parts.
func TestEveryCodeIsReported(t *testing.T) {
	for _, c := range code.All() {
		for _, effect := range []exit.Effect{exit.Reads, exit.Writes} {
			r := exit.Describe(code.New(c, "x"), effect)
			if r.Exit < exit.Unknown || r.Exit > exit.NotThere || r.Exit == exit.Usage {
				t.Errorf("%v: exit code %d", c, r.Exit)
			}
			if r.Code != c.Error() || r.What == "" || r.Data == "" || r.Do == "" {
				t.Errorf("%v: incomplete report %+v", c, r)
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	unknown := exit.Describe(code.New(code.OutcomeUnknown, "connection lost"), exit.Writes)
	if unknown.Class != "unknown" || unknown.Data != "unknown: it may or may not have been done; look before doing it again" {
		t.Errorf("an unknown write is reported as %+v", unknown)
	}
	own := exit.Describe(fmt.Errorf("outer: %w", &exit.Error{
		Err: code.New(code.NotFound, "x"), Data: "d", Do: "do",
	}), exit.Writes)
	if own.Exit != exit.NotThere || own.Data != "d" || own.Do != "do" || own.Code != "not_found" {
		t.Errorf("a failure's own words are lost: %+v", own)
	}
	wrapped := exit.Describe(fmt.Errorf("line 3: %w", code.New(code.TooLarge, "9 bytes")), exit.Writes)
	if wrapped.What != "line 3: too_large: 9 bytes" || wrapped.Do != code.TooLarge.Remedy() {
		t.Errorf("a remedy belongs in its own place: %+v", wrapped)
	}
	misuse := exit.Describe(exit.Misuse("no such flag"), exit.Writes)
	if misuse.Code != "usage" || misuse.Data != "nothing was tried" {
		t.Errorf("misuse is reported as %+v", misuse)
	}
}
