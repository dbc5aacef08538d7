// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/wire/code"
)

// sink answers lines by what they say, so that a test reads as the conversation it stands for.
type sink struct {
	acked   []string
	pending atomic.Int64
	most    int64
	ackErr  error
}

func (s *sink) config() Config[string] {
	return Config[string]{
		MaxLine: 100, Window: 8, Grace: 5 * time.Second,
		Send: func(_ context.Context, line []byte) (func(context.Context) (string, error), error) {
			if string(line) == "nokey" {
				return nil, errors.New("no key")
			}
			s.most = max(s.most, s.pending.Add(1))
			return func(ctx context.Context) (string, error) {
				defer s.pending.Add(-1)
				return answer(ctx, string(line))
			}, nil
		},
		Acked: func(n uint64, ack string) error {
			s.acked = append(s.acked, fmt.Sprint(n, "=", ack))
			return s.ackErr
		},
	}
}

func answer(ctx context.Context, line string) (string, error) {
	switch line {
	case "refuse":
		return "", code.New(code.TooLarge, "no")
	case "lose":
		return "", code.New(code.OutcomeUnknown, "who knows")
	case "slow": // answers within the grace
		select {
		case <-time.After(time.Second):
			return "slow", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	case "never":
		<-ctx.Done()
		return "", ctx.Err()
	}
	return line, nil
}

func publish(ctx context.Context, s *sink, in io.Reader) (string, uint64, error) {
	var acked atomic.Uint64
	fates, err := Publish(ctx, in, &acked, s.config())
	return fates.Meaning(), acked.Load(), err
}

func TestPublish(t *testing.T) {
	tests := []struct{ in, acked, meaning, err string }{
		{"", "[]", "no line was sent", ""},
		{"a\n\nb", "[1=a 2= 3=b]", "lines 1-3: certainly in; no line after 3 was sent", ""},
		{"a\nrefuse\n", "[1=a]", "line 1: certainly in; line 2: certainly not in; no line after 2 was sent", "line 2: too_large"},
		{"a\nlose\n", "[1=a]", "line 1: certainly in; line 2: unknown (may be in); no line after 2 was sent", "line 2: outcome_unknown"},
		{"nokey\na\n", "[]", "line 1: certainly not in; no line after 1 was sent", "line 1: no key"},
		{"slow\nnokey\na\n", "[1=slow]", "line 1: certainly in; line 2: certainly not in; no line after 2 was sent", "line 2: no key"},
		{"a\n" + strings.Repeat("x", 101), "[1=a]", "line 1: certainly in; line 2: certainly not in; no line after 2 was sent", "line 2: too_large"},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			var s sink
			meaning, acked, err := publish(t.Context(), &s, strings.NewReader(test.in))
			if got := fmt.Sprint(s.acked); got != test.acked || meaning != test.meaning || int(acked) != len(s.acked) {
				t.Errorf("%q: acked %s (%d), %q; want %s, %q", test.in, got, acked, meaning, test.acked, test.meaning)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%q: error %v, want %s", test.in, err, test.err)
			}
		})
	}
}

// Lines that were on their way when one failed have fates of their own, and each must be told.
func TestPublishTellsTheFateOfLinesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sink
		meaning, _, err := publish(t.Context(), &s, strings.NewReader("slow\na\nrefuse\nb\nlose\nlose\nc\n"))
		want := "lines 1-2, 4, 7: certainly in; line 3: certainly not in; lines 5-6: unknown (may be in); no line after 7 was sent"
		if meaning != want {
			t.Errorf("got %q, want %q", meaning, want)
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != 3 || !errors.Is(err, code.TooLarge) {
			t.Errorf("error %v, want line 3's", err)
		}
	})
}

func TestPublishIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sink
		_, acked, err := publish(t.Context(), &s, strings.NewReader(strings.Repeat("slow\n", 50)))
		if err != nil || acked != 50 {
			t.Errorf("acked %d, %v", acked, err)
		}
		if most := int64(s.config().Window) + 2; s.most > most { // one in each loop's hand
			t.Errorf("%d lines without an answer, want at most %d", s.most, most)
		}
	})
}

// Cancelling must neither wait for an input that says nothing nor give up on answers that are near.
func TestPublishCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sink
		ctx, cancel := context.WithCancel(t.Context())
		in, feed := io.Pipe()
		defer feed.Close()
		go func() {
			_, _ = io.WriteString(feed, "a\nslow\nnever\n")
			synctest.Wait()
			cancel()
		}()
		start := time.Now()
		meaning, _, err := publish(ctx, &s, in)
		want := "lines 1-2: certainly in; line 3: unknown (may be in); no line after 3 was sent"
		if meaning != want || !errors.Is(err, context.Canceled) {
			t.Errorf("got %q, %v; want %q", meaning, err, want)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v, want the grace", took)
		}
	})
}

func TestPublishStopsWhenTheOutputIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sink{ackErr: errors.New("standard output is closed")}
		in, feed := io.Pipe()
		defer feed.Close()
		go func() { _, _ = io.WriteString(feed, "a\n") }()
		_, _, err := publish(t.Context(), &s, in)
		if !errors.Is(err, s.ackErr) {
			t.Errorf("error %v, want the output's", err)
		}
	})
}

func TestRanges(t *testing.T) {
	var r Ranges
	for n := range uint64(30) {
		r.add(n*2 + 1)
	}
	if r.Count() != 30 || !strings.HasSuffix(r.String(), "37, 39 and 10 more") {
		t.Errorf("%d lines: %v", r.Count(), r)
	}
}
