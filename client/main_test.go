// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
)

// stream is the full name of the log that most tests use.
const stream = "default/default/orders"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is the deadline of everything a test waits for.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, b *fakebroker.Broker, opts ...client.Option) *client.Client {
	t.Helper()
	opts = append([]client.Option{client.WithCA(b.CA), client.WithToken("secret")}, opts...)
	c, err := client.Connect(within(t), b.Address(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually waits until ok, and fails with what it waited for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}

func value(i int) string { return fmt.Sprintf("v%06d", i) }

// take reads n records.
func take(t testing.TB, s *client.Subscription, n int) []client.Record {
	t.Helper()
	var out []client.Record
	if n == 0 {
		return out
	}
	for rec, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		if out = append(out, rec); len(out) == n {
			break
		}
	}
	if len(out) < n {
		t.Fatalf("the subscription ended after %d of %d records", len(out), n)
	}
	return out
}

// all reads to the end that was asked for.
func all(t testing.TB, s *client.Subscription) []client.Record {
	t.Helper()
	var out []client.Record
	for rec, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatalf("after %d records: %v", len(out), err)
		}
		out = append(out, rec)
	}
	return out
}

func wantError(t testing.TB, err, want error, class client.Class) {
	t.Helper()
	e := client.AsError(err)
	if e == nil || !errors.Is(err, want) || e.Class != class {
		t.Fatalf("error is %v, want %v of class %v", err, want, class)
	}
}
