// SPDX-License-Identifier: Apache-2.0

package work_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/cmd/internal/work"
)

func shell(script string, out, errs *bytes.Buffer) *work.Command {
	return &work.Command{Argv: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: out, Stderr: errs, Grace: time.Minute}
}

func TestTheEndOfACommandSaysWhatBecomesOfItsMessage(t *testing.T) {
	for script, want := range map[string]work.Result{
		"cat":                            {Outcome: work.Done},
		"exit 65":                        {Outcome: work.Rejected, Status: 65, Reason: "exit status 65"},
		"exit 75":                        {Outcome: work.Retry, Status: 75, Reason: "exit status 75"},
		"echo a; echo b >&2; exit 1":     {Outcome: work.Retry, Status: 1, Reason: "exit status 1: b"},
		"printf 'x\\n\\n' >&2; exit 65":  {Outcome: work.Rejected, Status: 65, Reason: "exit status 65: x"},
		"kill -9 $$":                     {Outcome: work.Retry, Status: -1, Reason: "signal: killed"},
		"printf '\\377' >&2; exit 2":     {Outcome: work.Retry, Status: 2, Reason: "exit status 2: \ufffd"},
		"test \"$A\" = 'b c' || exit 3":  {Outcome: work.Done},
		"read x; test \"$x\" = 'a line'": {Outcome: work.Done},
	} {
		var out, errs bytes.Buffer
		got, err := shell(script, &out, &errs).Run(t.Context(), []byte("a line\nmore"), []string{"A=b c"})
		got.Ran = 0
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", script, got, err, want)
		}
		if script == "cat" && out.String() != "a line\nmore" {
			t.Errorf("passed on %q", out.String())
		}
		if strings.HasPrefix(script, "echo") && errs.String() != "b\n" {
			t.Errorf("standard error is %q", errs.String())
		}
	}
}

func TestAReasonIsShort(t *testing.T) {
	var out, errs bytes.Buffer
	got, err := shell("printf 'a%.0s' $(seq 3000) >&2; printf 'é%.0s' $(seq 3000) >&2; exit 1", &out, &errs).Run(t.Context(), nil, nil)
	if err != nil || len(got.Reason) > 250 || strings.Contains(got.Reason, "\ufffd\ufffd") {
		t.Errorf("%d bytes, %v", len(got.Reason), err)
	}
}

// A command that takes longer than it may is ended with all of its children, and its message comes again.
func TestALateCommandIsEnded(t *testing.T) {
	var out, errs bytes.Buffer
	c := shell("trap '' TERM; while :; do sleep 0.01; done", &out, &errs)
	c.Within, c.Grace = 50*time.Millisecond, 50*time.Millisecond
	got, err := c.Run(t.Context(), nil, nil)
	if err != nil || got.Outcome != work.Retry || !strings.HasPrefix(got.Reason, "it did not end within 50ms") {
		t.Errorf("it was killed: %+v, %v", got, err)
	}
}

// What is told to end may still say that it is done; else nobody knows how far it had got.
func TestACommandIsToldToEnd(t *testing.T) {
	for script, want := range map[string]work.Outcome{
		"echo; sleep 1000": work.Stopped,
		"trap 'exit 0' TERM; echo; while :; do sleep 0.01; done": work.Done,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan struct{})
		go func() { // the script has begun when it writes
			defer close(told)
			_, _ = r.Read(make([]byte, 1))
			cancel()
		}()
		c := &work.Command{Argv: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: w, Stderr: &bytes.Buffer{}, Grace: time.Minute}
		if got, err := c.Run(ctx, nil, nil); err != nil || got.Outcome != want {
			t.Errorf("%s: %+v, %v", script, got, err)
		}
		_ = w.Close()
		<-told
		_ = r.Close()
		if got, err := c.Run(ctx, nil, nil); err != nil || got.Outcome != work.Stopped {
			t.Errorf("%s, when all is over: %+v, %v", script, got, err)
		}
	}
}

func TestACommandThatIsNotThere(t *testing.T) {
	c := &work.Command{Argv: []string{"no-such-command-anywhere"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}
	if err := c.Check(); err == nil {
		t.Error("it is said to be there")
	}
	if _, err := c.Run(t.Context(), nil, nil); err == nil || work.Found(err) {
		t.Errorf("%v", err)
	}
	c.Argv = []string{"sh"}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

func TestVariables(t *testing.T) {
	for value, want := range map[string][]string{
		"user/1": {"K=user/1"}, "": {"K="}, "a\x00b": {"K=YQBi", "K_ENCODING=base64"}, "\xff": {"K=/w==", "K_ENCODING=base64"},
	} {
		if got := work.Variable("K", []byte(value)); !slices.Equal(got, want) {
			t.Errorf("%q: %q", value, got)
		}
	}
	if got := work.HeaderName("content-Type.9é"); got != "MARGAY_HEADER_CONTENT_TYPE_9_" {
		t.Error(got)
	}
	got := work.Without([]string{"PATH=/bin", "MARGAY_TOKEN=x", "MARGAY_KEY=a", "MARGAY_HEADER_A=b", "MARGAY_HEADERS=[]"})
	if !slices.Equal(got, []string{"PATH=/bin", "MARGAY_TOKEN=x"}) {
		t.Errorf("%q", got)
	}
}
