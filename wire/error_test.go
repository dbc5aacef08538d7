// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"margay.dev/wire/code"
)

func TestErrorCarriesEverything(t *testing.T) {
	sent := code.New(code.Overloaded, "publish a/b/c: quota").Retry(1500*time.Microsecond).At("b2:7420", 9).
		With(code.DetailLimit, 100)
	var f Error
	if err := f.Parse(NewError(sent).Append(nil)); err != nil {
		t.Fatal(err)
	}
	got := f.Err()
	if got.Code != sent.Code || got.Class != sent.Class || got.Message != sent.Message || got.Address != sent.Address ||
		got.Generation != sent.Generation || got.Details != sent.Details {
		t.Errorf("got %+v, sent %+v", got, sent)
	}
	if got.RetryAfter != 2*time.Millisecond {
		t.Errorf("a wait of 1.5 ms became %v, want 2 ms: never too early", got.RetryAfter)
	}
}

func TestErrorOfAnyGoError(t *testing.T) {
	f := NewError(context.DeadlineExceeded)
	if f.Code != code.Timeout || f.Class != code.ClassUnknown {
		t.Errorf("got %+v", f)
	}
	if f := NewError(code.New(code.Internal, "%s", strings.Repeat("x", 5000))); len(f.Message) != maxMessage {
		t.Errorf("message of %d bytes", len(f.Message))
	}
}

// A newer broker may send details and codes that this build does not know: the error is still read.
func TestErrorFromNewerPeer(t *testing.T) {
	f := &Error{Code: 900, Class: code.ClassRefused, Message: "new"}
	body := f.Append(nil)
	body[len(body)-1] = 2
	body = binary.LittleEndian.AppendUint64(append(body, byte(code.DetailLimit)), 8)
	body = binary.LittleEndian.AppendUint64(append(body, 250), 1)
	var got Error
	if err := got.Parse(body); err != nil {
		t.Fatal(err)
	}
	if v, ok := got.Details.Get(code.DetailLimit); !ok || v != 8 || got.Details.Len() != 1 {
		t.Errorf("details %+v", got.Details)
	}
	if got.Err().Class != code.ClassRefused {
		t.Error("the class of an unknown code is what the peer says")
	}
}
