// SPDX-License-Identifier: Apache-2.0

package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

func TestTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		row := table[c]
		if row.name == "" || row.meaning == "" || row.remedy == "" || row.class == 0 {
			t.Errorf("code %d: incomplete row %+v", c, row)
		}
		if seen[row.name] {
			t.Errorf("code %d: name %q is taken", c, row.name)
		}
		seen[row.name] = true
	}
	if got := len(All()); got != int(NoLongerOwner) {
		t.Errorf("All has %d codes, want %d", got, NoLongerOwner)
	}
}

func TestUnknownCodeConcludesNothing(t *testing.T) {
	for _, c := range []Code{0, NoLongerOwner + 1, 65535} {
		if c.Known() || c.Class() != ClassUnknown || c.Remedy() == "" {
			t.Errorf("code %d: known %v, class %v, remedy %q", c, c.Known(), c.Class(), c.Remedy())
		}
	}
	if got := Code(900).Error(); got != "code_900" {
		t.Errorf("name of 900 = %q", got)
	}
}

func TestErrorText(t *testing.T) {
	err := New(NotFound, "lookup %s", "a/b/c")
	const want = "not_found: lookup a/b/c (check the name and the tenant)"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err.Error(), want)
	}
	if got := (&Error{Code: Closed}).Error(); got != "closed (open a new one)" {
		t.Errorf("without a message: %q", got)
	}
}

func TestErrorIs(t *testing.T) {
	err := fmt.Errorf("publish a/b/c: %w", New(Timeout, "commit: %w", io.ErrUnexpectedEOF))
	if !errors.Is(err, Timeout) || errors.Is(err, NotFound) {
		t.Error("errors.Is does not go by the code")
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
}

func TestFrom(t *testing.T) {
	own := New(NotLeader, "shard 3").At("b:7420", 9).Retry(time.Second)
	for _, tc := range []struct {
		err   error
		code  Code
		class Class
	}{
		{own, NotLeader, ClassRefused},
		{fmt.Errorf("wrapped: %w", own), NotLeader, ClassRefused},
		{fmt.Errorf("wrapped: %w", Opening), Opening, ClassRefused},
		{context.Canceled, Cancelled, ClassUnknown},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), Timeout, ClassUnknown},
		{os.ErrDeadlineExceeded, Timeout, ClassUnknown},
		{io.EOF, Internal, ClassUnknown},
		{New(Timeout, "dial").WithClass(ClassRefused), Timeout, ClassRefused},
	} {
		if got := From(tc.err); got.Code != tc.code || got.Class != tc.class {
			t.Errorf("From(%v) = %v %v, want %v %v", tc.err, got.Code, got.Class, tc.code, tc.class)
		}
	}
	if From(nil) != nil {
		t.Error("From(nil) is not nil")
	}
	if got := From(own); got != own {
		t.Error("From does not keep an *Error")
	}
}

func TestDetails(t *testing.T) {
	var d Details
	for k := DetailEarliest; k <= LastDetail; k++ {
		if _, ok := d.Get(k); ok {
			t.Errorf("detail %d is set before Put", k)
		}
		d.Put(k, uint64(k)*10)
		if v, ok := d.Get(k); !ok || v != uint64(k)*10 {
			t.Errorf("detail %d = %d, %v", k, v, ok)
		}
	}
	before := d
	d.Put(LastDetail+1, 1)
	d.Put(200, 1)
	if d != before {
		t.Error("an unknown detail changed something")
	}
	if _, ok := d.Get(200); ok {
		t.Error("an unknown detail is present")
	}
}
